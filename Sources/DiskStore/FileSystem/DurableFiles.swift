import CacheCore
import LinuxSupport
import NIOConcurrencyHelpers
import Synchronization

/// Small files that survive a power cut in either the old or the new state.
extension Disk {
    /// Returns the contents of a file; nil if it is missing. Returns no bytes for anything but a plain file of at most
    /// `limit` bytes, since the store writes no other.
    func contents(of name: FileName, in directory: Directory, limit: Int) throws(SystemError) -> Secret? {
        do {
            let file = try open(name, in: directory, for: .reading)
            let status = try file.status()
            guard status.kind == .file, status.size <= limit else { return Secret([]) }
            return try withWipedMemory(Int(status.size)) { memory throws(SystemError) in
                let count = try file.read(into: memory)
                return Secret(UnsafeRawBufferPointer(rebasing: memory[..<count]))
            }
        } catch {
            if error.isMissing { return nil }
            if error.isWrongKind { return Secret([]) }
            throw error
        }
    }

    /// The temporary name while a file is replaced: one for each file, so that a later step finds what an earlier
    /// attempt left.
    static func temporaryName(for name: FileName) -> FileName { name.appending("tmp") }

    /// Replaces a file durably. Leaves no temporary file if it throws.
    /// - Parameter which: the directory, if failed fsyncs of it are tracked (F7).
    func replace(
        _ name: FileName, in directory: Directory, _ which: SyncedDirectory? = nil, with bytes: UnsafeRawBufferPointer
    ) throws(SystemError) {
        let temporary = Self.temporaryName(for: name)
        do {
            try unlinkIfPresent(temporary, in: directory)
            try create(temporary, in: directory, with: bytes)
            try rename(temporary, in: directory, to: name, in: directory)
        } catch {
            // If this fails, the next attempt, the logout or the sweep removes it.
            unlinkIfPossible(temporary, in: directory)
            throw error
        }
        if let which { try sync(directory, which) } else { try sync(directory) }
    }

    /// Replaces a file durably. For bytes that are not secret.
    func replace(
        _ name: FileName, in directory: Directory, _ which: SyncedDirectory? = nil, with bytes: some Sequence<UInt8>
    ) throws {
        try Array(bytes).withUnsafeBytes { try replace(name, in: directory, which, with: $0) }
    }

    /// Unlinks a name. Ignores errors, because a later step removes it.
    func unlinkIfPossible(_ name: FileName, in directory: Directory) {
        do throws(SystemError) {
            try unlinkIfPresent(name, in: directory)
        } catch {}
    }

    /// Creates a file with durable contents. Its name becomes durable with the directory. May leave an incomplete file.
    func create(_ name: FileName, in directory: Directory, with bytes: UnsafeRawBufferPointer) throws(SystemError) {
        var file = try open(name, in: directory, for: .creating)
        try file.write(bytes)
        try file.sync()
        try file.close()
    }

    /// Overwrites a file with zeros, durably. Does nothing if it is missing.
    func overwrite(_ name: FileName, in directory: Directory) throws(SystemError) {
        do throws(SystemError) {
            let file = try open(name, in: directory, for: .overwriting)
            let status = try file.status()
            // The store's own files are smaller. Of a larger file, overwriting the start suffices to make it invalid.
            if status.kind == .file { try file.writeZeros(Int(min(status.size, 1 << 16))) }
        } catch {
            if !error.isMissing && !error.isWrongKind { throw error }
        }
    }

    /// Writes to an existing file durably. Succeeds on a full disk.
    func overwrite(
        _ name: FileName, in directory: Directory, with bytes: UnsafeRawBufferPointer, at offset: Int64
    ) throws(SystemError) {
        var file = try open(name, in: directory, for: .overwriting)
        try file.write(bytes, at: offset)
        try file.sync()
        try file.close()
    }
}

extension OpenFile {
    /// Writes zeros at the start, durably, so that the file system allocates the blocks.
    func writeZeros(_ count: Int) throws(SystemError) {
        let zeros = UnsafeMutableRawBufferPointer.allocate(byteCount: count, alignment: 16)
        defer { zeros.deallocate() }
        zeros.initializeMemory(as: UInt8.self, repeating: 0)
        try write(UnsafeRawBufferPointer(zeros))
        try sync()
    }
}

/// A directory whose fsyncs are tracked, however it was opened.
enum SyncedDirectory: Hashable, Sendable {
    case keys, sessions
    case keysOf(uid: UInt32), sessionsOf(uid: UInt32)
    case images(DirectoryCache.Key)
}

/// The last failed fsync of each directory.
struct FailedSyncs: Sendable {
    fileprivate var failures: [SyncedDirectory: (number: UInt64, error: SystemError)] = [:]
    fileprivate var last: UInt64 = 0
}

extension Disk {
    /// Whether an fsync of this directory has failed and none after a new change has succeeded since.
    func hasFailedSync(_ which: SyncedDirectory) -> Bool { failedSyncs.withLockedValue { $0.failures[which] != nil } }

    /// Makes the changes to a directory durable.
    ///
    /// After a failed fsync, a successful one proves nothing, because the kernel may have dropped the changes (F7). So
    /// the directory is changed again first, and a failure of another thread's fsync of it fails this call, too.
    func sync(_ directory: Directory, _ which: SyncedDirectory) throws(SystemError) {
        let before = failedSyncs.withLockedValue { $0.failures[which]?.number }
        if before != nil {
            let name = temporaries.make()
            _ = try open(name, in: directory, for: .creating)
            try unlink(name, in: directory)
        }
        do {
            try sync(directory)
        } catch {
            failedSyncs.withLockedValue { state in
                state.last += 1
                state.failures[which] = (state.last, error)
            }
            throw error
        }
        let since = failedSyncs.withLockedValue { state -> SystemError? in
            guard state.failures[which]?.number == before else { return state.failures[which]?.error }
            state.failures[which] = nil
            return nil
        }
        if let since { throw since }
    }

    /// Discards the failures of an ended generation.
    func forgetFailedSyncs(of generation: UInt64) {
        failedSyncs.withLockedValue { state in
            state.failures = state.failures.filter { which, _ in
                if case .images(let key) = which { key.generation != generation } else { true }
            }
        }
    }
}

/// Names of temporary files, with a random prefix of this run, so that files of an earlier run can be recognized.
final class TemporaryNames: Sendable {
    private static let prefix = Array("tmp.".utf8)
    private let ours: [UInt8]
    private let next = Atomic<UInt64>(0)

    init(random: any RandomSource) throws {
        // 64 bits suffice to tell runs apart.
        ours = Self.prefix + (try random.generationID()).fileName.bytes.prefix(16)
    }

    func make() -> FileName {
        let number = next.wrappingAdd(1, ordering: .relaxed).newValue
        return FileName(ours + [UInt8(ascii: ".")] + String(number).utf8)
    }

    func isTemporary(_ name: FileName) -> Bool { name.bytes.starts(with: Self.prefix) }

    func isOurs(_ name: FileName) -> Bool { name.bytes.starts(with: ours) }

    func isStale(_ name: FileName) -> Bool { isTemporary(name) && !isOurs(name) }
}
