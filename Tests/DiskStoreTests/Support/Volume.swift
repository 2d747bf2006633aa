import DiskStore

/// What a disk holds: inodes, and names that lead to them. A value: a copy is another disk.
///
/// An inode has one place at most, since the store makes no hard links.
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
        /// Counts changes, in place of the time.
        var modified: Int64 = 0
    }

    /// What a system call does to a disk.
    enum Change {
        /// Made at a place, or renamed to it from another, over what is there.
        case put(Inode, at: Place, from: Place?)
        /// The two are swapped; each with where it was.
        case swap(Inode, Place, Inode, Place)
        case remove(Inode, from: Place)
        case write(Inode, [UInt8], offset: Int)
        case sync(Inode)

        /// Any of these makes it durable by its fsync.
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

    /// A new inode that nothing leads to yet.
    mutating func makeNode(isDirectory: Bool) -> Inode {
        nodes.append(Node(isDirectory: isDirectory))
        return nodes.count - 1
    }

    /// Does a change, also where one before it was lost: what it would have removed need not be there.
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

    /// Key files to which no name leads any more, and which nobody has overwritten (F70): "TCKEYS".
    var keyRemnants: Int { nodes.count { $0.place == nil && $0.bytes.starts(with: "TCKEYS".utf8) } }

    /// Every plain file, by its path, with its length.
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

    /// Every path that has something in it, or is an empty directory.
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

/// What a loss of power leaves.
///
/// The disk is one as ext4, xfs and btrfs make it of hardware that keeps what it was told to flush:
/// - A write is durable when its file was synced since. Of others any sectors of 512 bytes may be there, in the new
///   state or the old one, so that a write may be torn, in place or not.
/// - A name that was made, renamed or removed is durable when its directory was synced since; of a rename either
///   directory will do. Others may be there or not, whatever came before and after them, in one directory and in
///   several. That a file or directory was synced makes no name of it durable. This is less than any of the three
///   promises: they keep the order, and sync the names that a new file needs.
/// - A rename or swap is there as a whole or not at all.
enum Survival: Sendable, Hashable, CustomStringConvertible {
    /// Nothing but what is durable.
    case durable
    case everything
    /// By chance. With an odd seed everything is durable that was there before the operation.
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
    ///   - changes: all until the cut.
    ///   - operation: how many of them came before the operation.
    func volume(of changes: ArraySlice<Volume.Change>, on start: Volume, inodes: [Volume.Node], operation: Int)
        -> Volume
    {
        var volume = start
        for node in inodes[start.nodes.count...] { _ = volume.makeNode(isDirectory: node.isDirectory) }
        var synced: Set<Volume.Inode> = []
        // From the last to the first: a sync is of what came before it.
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
        var random: SplitMix
        /// In 256.
        var share: UInt64
        var isSettled: Bool

        init(_ survival: Survival) {
            if case .seeded(let seed) = survival {
                random = SplitMix(state: seed)
                share = [40, 128, 216][Int(random.next() % 3)]
                isSettled = seed % 2 == 1
            } else {
                (random, share, isSettled) = (SplitMix(state: 0), 0, false)
            }
        }

        mutating func survives() -> Bool { random.next() % 256 < share }
    }
}

/// Numbers that a seed repeats (Steele, Lea and Flood, 2014).
struct SplitMix {
    var state: UInt64

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ mixed >> 30) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ mixed >> 27) &* 0x94D0_49BB_1331_11EB
        return mixed ^ mixed >> 31
    }
}
