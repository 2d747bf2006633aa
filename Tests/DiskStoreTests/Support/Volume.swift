import DiskStore
import TestSupport

/// The contents of a disk: inodes and names. A value type, so copies are independent.
///
/// An inode has at most one name, because the store creates no hard links.
struct Volume {
    typealias Inode = Int

    struct Place: Hashable {
        var directory: Inode
        var name: FileName
    }

    struct Node {
        let isDirectory: Bool
        var bytes: [UInt8] = []
        var names: [FileName: Inode] = [:]
        var place: Place?
        /// Number of the change that modified it, instead of a time.
        var modified: Int64 = 0
    }

    /// The effect of a system call on the disk.
    enum Change {
        /// Creates a file or renames it, replacing the destination.
        case put(Inode, at: Place, from: Place?)
        /// Swaps two files, each with its directory and name.
        case swap(Inode, Place, Inode, Place)
        case remove(Inode, from: Place)
        case write(Inode, [UInt8], offset: Int)
        case sync(Inode)

        /// An fsync of any of these makes the change durable.
        var inodes: [Inode] {
            switch self {
            case .put(_, let place, let old): [place.directory] + (old.map { [$0.directory] } ?? [])
            case .swap(_, let one, _, let other): [one.directory, other.directory]
            case .remove(_, let place): [place.directory]
            case .write(let inode, _, _): [inode]
            case .sync: []
            }
        }
    }

    static let root: Inode = 0
    var nodes: [Node] = [Node(isDirectory: true)]

    /// Creates an inode without a name.
    mutating func makeNode(isDirectory: Bool) -> Inode {
        nodes.append(Node(isDirectory: isDirectory))
        return nodes.count - 1
    }

    /// Applies a change, even if earlier changes that it depends on were lost.
    mutating func apply(_ change: Change) {
        switch change {
        case .put(let inode, let place, _): put(inode, at: place)
        case .swap(let one, let placeOfOne, let other, let placeOfOther):
            detach(one)
            detach(other)
            put(one, at: placeOfOther)
            put(other, at: placeOfOne)
        case .remove(let inode, let place): if nodes[inode].place == place { detach(inode) }
        case .write(let inode, let bytes, let offset):
            let missing = offset + bytes.count - nodes[inode].bytes.count
            if missing > 0 { nodes[inode].bytes += [UInt8](repeating: 0, count: missing) }
            nodes[inode].bytes.replaceSubrange(offset..<(offset + bytes.count), with: bytes)
        case .sync: break
        }
    }

    private mutating func put(_ inode: Inode, at place: Place) {
        detach(inode)
        if let old = nodes[place.directory].names[place.name] { detach(old) }
        nodes[place.directory].names[place.name] = inode
        nodes[inode].place = place
    }

    private mutating func detach(_ inode: Inode) {
        guard let place = nodes[inode].place else { return }
        nodes[place.directory].names[place.name] = nil
        nodes[inode].place = nil
    }

    /// Key files without a name that were not overwritten (F70), recognized by "TCKEYS".
    var keyRemnants: Int { nodes.count { $0.place == nil && $0.bytes.starts(with: "TCKEYS".utf8) } }

    /// All plain files with their sizes.
    var files: [(path: String, size: Int)] {
        var found: [(path: String, size: Int)] = []
        func walk(_ directory: Inode, _ path: String) {
            for (name, inode) in nodes[directory].names {
                let path = path + "/" + name.withCString { String(cString: $0) }
                if nodes[inode].isDirectory {
                    walk(inode, path)
                } else {
                    found.append((path, nodes[inode].bytes.count))
                }
            }
        }
        walk(Self.root, "")
        return found
    }

    /// All directories.
    var directories: [String] {
        var found: [String] = []
        func walk(_ directory: Inode, _ path: String) {
            for (name, inode) in nodes[directory].names where nodes[inode].isDirectory {
                let path = path + "/" + name.withCString { String(cString: $0) }
                found.append(path)
                walk(inode, path)
            }
        }
        walk(Self.root, "")
        return found
    }
}

/// The changes that survive a power cut.
///
/// Models ext4, xfs and btrfs on hardware that honors flushes:
/// - A write is durable once its file is synced. Otherwise each sector of 512 bytes may have the old or the new
///   contents, so a write may be torn.
/// - Creating, renaming or removing a name is durable once its directory is synced; for a rename, either directory.
///   Otherwise it may be lost or not, independently of all other changes. Syncing a file or directory does not make its
///   own name durable. The real file systems promise more: they keep the order, and sync the name of a new file.
/// - A rename or swap is atomic.
enum Survival: Sendable, Hashable, CustomStringConvertible {
    /// Only durable changes survive.
    case durable
    case everything
    /// Random changes survive. With an odd seed, all changes before the operation survive.
    case seeded(UInt64)

    var description: String {
        switch self {
        case .durable: "nothing survives that is not durable"
        case .everything: "everything survives"
        case .seeded(let seed): "seed \(seed)"
        }
    }

    static let sector = 512

    /// - Parameters:
    ///   - changes: all changes before the cut.
    ///   - operation: number of changes before the operation.
    func volume(of changes: ArraySlice<Volume.Change>, on start: Volume, inodes: [Volume.Node], operation: Int)
        -> Volume
    {
        var volume = start
        for node in inodes[start.nodes.count...] { _ = volume.makeNode(isDirectory: node.isDirectory) }
        var synced: Set<Volume.Inode> = []
        // Backwards, because a sync covers the changes before it.
        var isDurable = [Bool](repeating: false, count: changes.count)
        for (index, change) in changes.enumerated().reversed() {
            if case .sync(let inode) = change { synced.insert(inode) }
            isDurable[index] = !synced.isDisjoint(with: change.inodes)
        }
        var chance = Chance(self)
        for (index, change) in changes.enumerated() {
            if isDurable[index] || self == .everything || chance.isSettled && index < operation {
                volume.apply(change)
            } else if case .write(let inode, let bytes, let offset) = change {
                var start = 0
                while start < bytes.count {
                    let end = min(bytes.count, start + Self.sector - (offset + start) % Self.sector)
                    if chance.survives() {
                        volume.apply(.write(inode, Array(bytes[start..<end]), offset: offset + start))
                    }
                    start = end
                }
            } else if chance.survives() {
                volume.apply(change)
            }
        }
        return volume
    }

    private struct Chance {
        var random: SeededRandom
        /// Out of 256.
        var share: UInt64
        var isSettled: Bool

        init(_ survival: Survival) {
            if case .seeded(let seed) = survival {
                random = SeededRandom(seed: seed)
                share = [40, 128, 216][Int(random.next() % 3)]
                isSettled = seed % 2 == 1
            } else {
                (random, share, isSettled) = (SeededRandom(seed: 0), 0, false)
            }
        }

        mutating func survives() -> Bool { random.next() % 256 < share }
    }
}
