import CLinux
import Glibc
import LinuxSupport
import NIOConcurrencyHelpers

@testable import DiskStore

/// A file system in memory that records all changes, so that a power cut can be simulated after any of them: see
/// ``Survival``.
final class ForgetfulSystem: FileSystem {
    fileprivate struct OpenNode {
        let inode: Volume.Inode
        /// Entries not listed yet; nil before the first listing.
        var unlisted: [(FileName, Volume.Inode)]?
    }

    fileprivate struct State {
        let start: Volume
        var volume: Volume
        var changes: [Volume.Change] = []
        var open: [Int32: OpenNode] = [:]
        var lastDescriptor: Int32 = 1000
        var locks: [Volume.Inode: Int32] = [:]

        mutating func change(_ change: Volume.Change) {
            volume.apply(change)
            changes.append(change)
        }
    }

    private let state: NIOLockedValueBox<State>

    /// - Parameter start: the initial contents, all durable.
    init(_ start: Volume = Volume()) { state = NIOLockedValueBox(State(start: start, volume: start)) }

    /// The current contents.
    var volume: Volume { state.withLockedValue { $0.volume } }

    /// Number of changes and syncs so far: the points at which power can be cut.
    var changes: Int { state.withLockedValue { $0.changes.count } }

    /// Number of open descriptors.
    var descriptors: Int { state.withLockedValue { $0.open.count } }

    /// Returns the contents after a power cut.
    /// - Parameters:
    ///   - changes: number of changes before the cut.
    ///   - operation: number of changes before the operation under test.
    func volume(cutAfter changes: Int, _ survival: Survival, operation: Int) -> Volume {
        let (start, all, nodes) = state.withLockedValue { ($0.start, $0.changes, $0.volume.nodes) }
        return survival.volume(of: all[..<changes], on: start, inodes: nodes, operation: operation)
    }

    /// Returns the same disk after a kill: all changes are visible, and as durable as before.
    func killed(after changes: Int) -> ForgetfulSystem {
        let (start, all, nodes) = state.withLockedValue { ($0.start, $0.changes, $0.volume.nodes) }
        var volume = start
        for node in nodes[start.nodes.count...] { _ = volume.makeNode(isDirectory: node.isDirectory) }
        for change in all[..<changes] { volume.apply(change) }
        return ForgetfulSystem(State(start: start, volume: volume, changes: Array(all[..<changes])))
    }

    private init(_ state: State) { self.state = NIOLockedValueBox(state) }

    /// Creates a directory in the root durably.
    func plantDirectory(_ name: FileName) throws {
        let root = try open("/", in: AT_FDCWD, for: .root)
        try makeDirectory(name, in: root)
        try sync(root)
        try close(root)
    }

    /// Creates an empty file durably.
    func plantFile(_ name: FileName, in directory: FileName) throws {
        let found = try open(directory, in: AT_FDCWD, for: .directory)
        try close(try open(name, in: found, for: .creating))
        try sync(found)
        try close(found)
    }

    // MARK: Names

    func open(_ name: FileName, in directory: Int32, for purpose: OpenPurpose) throws(SystemError) -> Int32 {
        try locked(.open) { state throws(SystemError) in
            let place = try state.place(.open, name, directory)
            let found = name.isCurrentDirectory ? place.directory : state.volume.nodes[place.directory].names[name]
            switch purpose {
            case .root:
                return state.opened(try state.walk(.open, name.text))
            case .directory:
                guard let found else { throw SystemError(.open, ENOENT) }
                guard state.volume.nodes[found].isDirectory else { throw SystemError(.open, ENOTDIR) }
                return state.opened(found)
            case .reading, .overwriting:
                guard let found else { throw SystemError(.open, ENOENT) }
                if case .overwriting = purpose, state.volume.nodes[found].isDirectory {
                    throw SystemError(.open, EISDIR)
                }
                return state.opened(found)
            case .creating, .keeping:
                if let found {
                    if case .creating = purpose { throw SystemError(.open, EEXIST) }
                    return state.opened(found)
                }
                return state.opened(try state.made(.open, at: place, isDirectory: false))
            }
        }
    }

    func openCached(_ path: FileName, in directory: Int32) throws(SystemError) -> Int32 {
        try locked(.openCached) { state throws(SystemError) in
            let start = try state.node(.openCached, directory)
            return state.opened(try state.walk(.openCached, path.text, from: start))
        }
    }

    func makeDirectory(_ name: FileName, in directory: Int32) throws(SystemError) {
        _ = try locked(.makeDirectory) { state throws(SystemError) in
            let place = try state.place(.makeDirectory, name, directory)
            if state.volume.nodes[place.directory].names[name] != nil { throw SystemError(.makeDirectory, EEXIST) }
            return try state.made(.makeDirectory, at: place, isDirectory: true)
        }
    }

    func rename(
        _ name: FileName, in directory: Int32, to newName: FileName, in newDirectory: Int32
    ) throws(SystemError) {
        try locked(.rename) { state throws(SystemError) in
            let (inode, old) = try state.existing(.rename, name, directory)
            let place = try state.place(.rename, newName, newDirectory)
            try state.expectLinked(.rename, place.directory)
            if let there = state.volume.nodes[place.directory].names[newName] {
                if state.volume.nodes[there].isDirectory { throw SystemError(.rename, EISDIR) }
                if state.volume.nodes[inode].isDirectory { throw SystemError(.rename, ENOTDIR) }
            }
            state.change(.put(inode, at: place, from: old))
        }
    }

    func exchange(_ name: FileName, with other: FileName, in directory: Int32) throws(SystemError) {
        try locked(.exchange) { state throws(SystemError) in
            let (one, placeOfOne) = try state.existing(.exchange, name, directory)
            let (two, placeOfTwo) = try state.existing(.exchange, other, directory)
            state.change(.swap(one, placeOfOne, two, placeOfTwo))
        }
    }

    func unlink(_ name: FileName, in directory: Int32) throws(SystemError) {
        try locked(.unlink) { state throws(SystemError) in
            let (inode, place) = try state.existing(.unlink, name, directory)
            if state.volume.nodes[inode].isDirectory { throw SystemError(.unlink, EISDIR) }
            state.change(.remove(inode, from: place))
        }
    }

    func removeDirectory(_ name: FileName, in directory: Int32) throws(SystemError) {
        try locked(.removeDirectory) { state throws(SystemError) in
            let (inode, place) = try state.existing(.removeDirectory, name, directory)
            guard state.volume.nodes[inode].isDirectory else { throw SystemError(.removeDirectory, ENOTDIR) }
            guard state.volume.nodes[inode].names.isEmpty else { throw SystemError(.removeDirectory, ENOTEMPTY) }
            state.change(.remove(inode, from: place))
        }
    }

    // MARK: Open files

    func status(of descriptor: Int32) throws(SystemError) -> FileStatus {
        try locked(.statusOfDescriptor) { state throws(SystemError) in
            state.status(of: try state.node(.statusOfDescriptor, descriptor))
        }
    }

    func status(of name: FileName, in directory: Int32) throws(SystemError) -> FileStatus {
        try locked(.statusOfName) { state throws(SystemError) in
            state.status(of: try state.existing(.statusOfName, name, directory).inode)
        }
    }

    func read(
        _ descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
    ) throws(SystemError) -> Int {
        let bytes = try locked(.read) { state throws(SystemError) in
            state.volume.nodes[try state.node(.read, descriptor)].bytes
        }
        let part = bytes.dropFirst(Int(offset)).prefix(buffer.count)
        buffer.copyBytes(from: part)
        return part.count
    }

    func readCached(
        _ descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
    ) throws(SystemError) -> Int { try read(descriptor, into: buffer, at: offset) }

    func write(
        _ descriptor: Int32, _ bytes: UnsafeRawBufferPointer, at offset: Int64
    ) throws(SystemError) -> Int {
        try locked(.write) { state throws(SystemError) in
            let inode = try state.node(.write, descriptor)
            state.change(.write(inode, Array(bytes), offset: Int(offset)))
            state.volume.nodes[inode].modified = Int64(state.changes.count)
        }
        return bytes.count
    }

    func sync(_ descriptor: Int32) throws(SystemError) {
        try locked(.sync) { state throws(SystemError) in state.change(.sync(try state.node(.sync, descriptor))) }
    }

    func list(_ descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer) throws(SystemError) -> Int {
        try locked(.list) { state throws(SystemError) in
            let inode = try state.node(.list, descriptor)
            try state.expectLinked(.list, inode)
            var rest =
                state.open[descriptor]?.unlisted
                ?? state.volume.nodes[inode].names.sorted { $0.value < $1.value }
                .map { ($0.key, $0.value) }
            var filled = 0
            while let (name, inode) = rest.first {
                let length = (Int(CLINUX_DIRENT_NAME_OFFSET) + name.terminated.count + 7) / 8 * 8
                if filled + length > buffer.count { break }
                let entry = UnsafeMutableRawBufferPointer(rebasing: buffer[filled..<(filled + length)])
                entry.initializeMemory(as: UInt8.self, repeating: 0)
                entry.storeBytes(of: UInt16(length), toByteOffset: Int(CLINUX_DIRENT_LENGTH_OFFSET), as: UInt16.self)
                entry[Int(CLINUX_DIRENT_TYPE_OFFSET)] = UInt8(state.volume.nodes[inode].isDirectory ? DT_DIR : DT_REG)
                UnsafeMutableRawBufferPointer(rebasing: entry[Int(CLINUX_DIRENT_NAME_OFFSET)...])
                    .copyBytes(from: name.terminated)
                filled += length
                rest.removeFirst()
            }
            state.open[descriptor]?.unlisted = rest
            return filled
        }
    }

    func lock(_ descriptor: Int32) throws(SystemError) {
        try locked(.lock) { state throws(SystemError) in
            let inode = try state.node(.lock, descriptor)
            if let holder = state.locks[inode], holder != descriptor { throw SystemError(.lock, EWOULDBLOCK) }
            state.locks[inode] = descriptor
        }
    }

    /// Times of use need not be durable, so they are not recorded as changes.
    func touch(_ descriptor: Int32, at seconds: Int64) throws(SystemError) {
        try locked(.touch) { state throws(SystemError) in
            state.volume.nodes[try state.node(.touch, descriptor)].modified = Int64(state.changes.count)
        }
    }

    func close(_ descriptor: Int32) throws(SystemError) {
        try locked(.close) { state throws(SystemError) in
            let inode = try state.node(.close, descriptor)
            if state.locks[inode] == descriptor { state.locks[inode] = nil }
            state.open[descriptor] = nil
        }
    }

    func isRemote(_ descriptor: Int32) -> Bool { false }

    func blockSize(_ descriptor: Int32) -> Int { 4096 }

    private func locked<Result>(
        _ call: SystemCall, _ body: (inout State) throws(SystemError) -> Result
    ) throws(SystemError) -> Result {
        let outcome = state.withLockedValue { state -> Swift.Result<Result, SystemError> in
            do throws(SystemError) { return .success(try body(&state)) } catch { return .failure(error) }
        }
        return try outcome.get()
    }
}

extension FileName {
    fileprivate var isCurrentDirectory: Bool { bytes.elementsEqual([UInt8(ascii: ".")]) }
}

extension ForgetfulSystem.State {
    fileprivate mutating func opened(_ inode: Volume.Inode) -> Int32 {
        lastDescriptor += 1
        open[lastDescriptor] = .init(inode: inode)
        return lastDescriptor
    }

    fileprivate func node(_ call: SystemCall, _ descriptor: Int32) throws(SystemError) -> Volume.Inode {
        guard let found = open[descriptor] else { throw SystemError(call, EBADF) }
        return found.inode
    }

    fileprivate func place(
        _ call: SystemCall, _ name: FileName, _ directory: Int32
    ) throws(SystemError) -> Volume.Place {
        let inode = directory == AT_FDCWD ? Volume.root : try node(call, directory)
        return Volume.Place(directory: inode, name: name)
    }

    fileprivate func existing(
        _ call: SystemCall, _ name: FileName, _ directory: Int32
    ) throws(SystemError) -> (inode: Volume.Inode, place: Volume.Place) {
        let place = try place(call, name, directory)
        guard let inode = volume.nodes[place.directory].names[name] else { throw SystemError(call, ENOENT) }
        return (inode, place)
    }

    fileprivate func walk(
        _ call: SystemCall, _ path: String, from start: Volume.Inode = Volume.root
    ) throws(SystemError) -> Volume.Inode {
        var found = start
        for part in path.split(separator: "/") {
            guard let next = volume.nodes[found].names[FileName(part.utf8)] else { throw SystemError(call, ENOENT) }
            found = next
        }
        return found
    }

    /// A removed directory accepts no names.
    fileprivate func expectLinked(_ call: SystemCall, _ directory: Volume.Inode) throws(SystemError) {
        guard directory == Volume.root || volume.nodes[directory].place != nil else { throw SystemError(call, ENOENT) }
    }

    fileprivate mutating func made(
        _ call: SystemCall, at place: Volume.Place, isDirectory: Bool
    ) throws(SystemError) -> Volume.Inode {
        try expectLinked(call, place.directory)
        let inode = volume.makeNode(isDirectory: isDirectory)
        change(.put(inode, at: place, from: nil))
        return inode
    }

    fileprivate func status(of inode: Volume.Inode) -> FileStatus {
        let node = volume.nodes[inode]
        return FileStatus(
            kind: node.isDirectory ? .directory : .file, linkCount: node.place == nil ? 0 : 1,
            size: Int64(node.bytes.count), owner: geteuid(), group: getegid(),
            permissions: node.isDirectory ? 0o700 : 0o600, device: 1, inode: UInt64(inode),
            modifiedSeconds: 1_700_000_000,
            modifiedNanoseconds: node.modified)
    }
}
