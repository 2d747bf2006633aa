import CacheCore
import LinuxSupport
import NIOConcurrencyHelpers
import Synchronization

/// Small files that must survive a power cut, whole in the old state or whole in the new one.
extension Disk {
    /// All bytes of a file; empty when what stands there is no file or is longer than `limit`, which nothing of the
    /// store's is; nil when there is none.
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
            if error.isOfWrongKind { return Secret([]) }
            throw error
        }
    }

    /// The name under which a file is written before it replaces another. One each, so that a retry, or the end of the
    /// log-in, finds what an attempt left.
    static func temporaryName(for name: FileName) -> FileName { name.with(invalidation: "tmp") }

    /// Writes a file and moves it over the old one, durably; leaves no temporary file behind when it throws.
    /// - Parameter which: the directory, for one of those whose failed fsyncs are kept in mind (F7).
    func replace(
        _ name: FileName, in directory: Directory, _ which: SyncedDirectory? = nil, with bytes: UnsafeRawBufferPointer
    ) throws(SystemError) {
        let temporary = Self.temporaryName(for: name)
        do {
            try unlinkIfPresent(temporary, in: directory)
            try create(temporary, in: directory, with: bytes)
            try rename(temporary, in: directory, to: name, in: directory)
        } catch {
            // Else the next attempt, the end of the log-in or the sweep finds it under its one name.
            unlinkIfPossible(temporary, in: directory)
            throw error
        }
        if let which { try sync(directory, which) } else { try sync(directory) }
    }

    /// The same with bytes that are no secret.
    func replace(
        _ name: FileName, in directory: Directory, _ which: SyncedDirectory? = nil, with bytes: some Sequence<UInt8>
    ) throws {
        try Array(bytes).withUnsafeBytes { try replace(name, in: directory, which, with: $0) }
    }

    /// Unlinks what whoever comes next finds and removes, if it stays.
    func unlinkIfPossible(_ name: FileName, in directory: Directory) {
        do throws(SystemError) {
            try unlinkIfPresent(name, in: directory)
        } catch {
            // It stays.
        }
    }

    /// Writes a file that is not there yet, with its bytes durable; its name is when its directory is. What stands
    /// there when this throws may be a part of it.
    func create(_ name: FileName, in directory: Directory, with bytes: UnsafeRawBufferPointer) throws(SystemError) {
        var file = try open(name, in: directory, for: .creating)
        try file.write(bytes)
        try file.sync()
        try file.close()
    }

    /// Overwrites a file with zeros, durably, as far as there is one.
    func overwrite(_ name: FileName, in directory: Directory) throws(SystemError) {
        do throws(SystemError) {
            let file = try open(name, in: directory, for: .overwriting)
            let status = try file.status()
            // The store's own files are far smaller; of anything larger the beginning is enough to end it.
            if status.kind == .file { try file.writeZeros(Int(min(status.size, 1 << 16))) }
        } catch {
            if !error.isMissing && !error.isOfWrongKind { throw error }
        }
    }

    /// Writes into a file that exists, durably. A full disk does not stop it.
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
    /// Makes it begin with zeros, durably: a file system that allocates late has set the blocks aside then.
    func writeZeros(_ count: Int) throws(SystemError) {
        let zeros = UnsafeMutableRawBufferPointer.allocate(byteCount: count, alignment: 16)
        defer { zeros.deallocate() }
        zeros.initializeMemory(as: UInt8.self, repeating: 0)
        try write(UnsafeRawBufferPointer(zeros))
        try sync()
    }
}

// MARK: Directories

/// A directory that is made durable, whichever way it was opened.
enum SyncedDirectory: Hashable, Sendable {
    case keys, sessions
    case keysOf(uid: UInt32), sessionsOf(uid: UInt32)
    case images(DirectoryCache.Key)
}

/// The last fsync of each directory that failed, by its number, with what the system said.
struct FailedSyncs: Sendable {
    fileprivate var failures: [SyncedDirectory: (number: UInt64, error: SystemError)] = [:]
    fileprivate var last: UInt64 = 0
}

extension Disk {
    /// Whether an fsync of a directory failed and none that proves anything has succeeded since.
    func hasFailedSync(_ which: SyncedDirectory) -> Bool { failedSyncs.withLockedValue { $0.failures[which] != nil } }

    /// Makes what happened in a directory durable.
    ///
    /// After an fsync has failed a second one that succeeds proves nothing: the kernel may have dropped what it could
    /// not write (F7). So a directory whose fsync failed is changed anew before the next one.
    /// - Throws: also when this fsync succeeded and another of the same directory failed meanwhile: what was to be made
    ///   durable may be what the kernel dropped then.
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

    /// Of a generation that is gone nothing is to be made durable.
    func forgetFailedSyncs(of generation: UInt64) {
        failedSyncs.withLockedValue { state in
            state.failures = state.failures.filter { which, _ in
                if case .images(let key) = which { key.generation != generation } else { true }
            }
        }
    }
}

// MARK: Temporary files

/// Names for files on their way: they say which run of the daemon made them, so that those of a run that died can be
/// told from those that are being written.
final class TemporaryNames: Sendable {
    private static let prefix = Array("tmp.".utf8)
    private let ours: [UInt8]
    private let next = Atomic<UInt64>(0)

    init(random: any RandomSource) throws {
        // The first half of a random name is enough to tell runs apart.
        ours = Self.prefix + (try random.generationID()).fileName.bytes.prefix(16)
    }

    func make() -> FileName {
        let number = next.wrappingAdd(1, ordering: .relaxed).newValue
        return FileName(ours + [UInt8(ascii: ".")] + String(number).utf8)
    }

    func isTemporary(_ name: FileName) -> Bool { name.bytes.starts(with: Self.prefix) }

    /// Whether a run before this one left it.
    func isStale(_ name: FileName) -> Bool { isTemporary(name) && !name.bytes.starts(with: ours) }
}
