import DiskStore
import Glibc
import LinuxSupport
import NIOConcurrencyHelpers

/// A file system with injected faults: failing, short and interrupted calls, and a death of the process, after which a
/// restart can be tested.
final class FaultySystem: FileSystem {
    enum Fault {
        /// The call fails with this errno and has no effect.
        case fail(Int32)
        /// A read or write transfers one byte.
        case short
        /// This call and all later ones fail, because the process is dead. Closing works, as in the kernel.
        case die
        /// The call succeeds, and then the process is dead.
        case dieAfter

        fileprivate var isDeadly: Bool {
            switch self {
            case .die, .dieAfter: true
            case .fail, .short: false
            }
        }
    }

    /// Returns the fault of a call, given its number among all calls and among those of its kind, from 1; nil for none.
    typealias Plan = @Sendable (_ call: SystemCall, _ number: Int, _ ofKind: Int) -> Fault?

    private struct State {
        var calls = 0
        var byCall: [SystemCall: Int] = [:]
        var isDead = false
        var descriptors = 0
        var plan: Plan = { _, _, _ in nil }
        var owner: UInt32?
        var group: UInt32?
        var isReadOnly = false
    }

    private let real: any FileSystem
    private let state = NIOLockedValueBox(State())

    init(over real: any FileSystem = LinuxFileSystem()) { self.real = real }

    /// Number of calls so far, except closes.
    var calls: Int { state.withLockedValue { $0.calls } }

    var isDead: Bool { state.withLockedValue { $0.isDead } }

    /// Number of open descriptors.
    var descriptors: Int { state.withLockedValue { $0.descriptors } }

    func count(of call: SystemCall) -> Int { state.withLockedValue { $0.byCall[call] ?? 0 } }

    /// Sets the plan and restarts the numbers.
    func plan(_ plan: @escaping Plan) {
        state.withLockedValue { state in
            state.calls = 0
            state.byCall = [:]
            state.plan = plan
        }
    }

    /// Makes open files appear to belong to this uid and gid; nil restores the real ones.
    func pretendOwner(_ uid: UInt32?, group: UInt32? = nil) {
        state.withLockedValue { state in
            state.owner = uid
            state.group = group
        }
    }

    /// Makes changes fail with EROFS, as after a remount or a disk error.
    func setReadOnly(_ isReadOnly: Bool = true) {
        state.withLockedValue { $0.isReadOnly = isReadOnly }
    }

    /// Removes all faults.
    func heal() {
        setReadOnly(false)
        plan { _, _, _ in nil }
    }

    private func perform<Result>(
        _ call: SystemCall, _ body: (_ isShort: Bool) throws(SystemError) -> Result
    ) throws(SystemError) -> Result {
        let numbered = state.withLockedValue { state -> (plan: Plan, number: Int, ofKind: Int)? in
            if state.isDead { return nil }
            state.calls += 1
            state.byCall[call, default: 0] += 1
            return (state.plan, state.calls, state.byCall[call] ?? 0)
        }
        guard let numbered else { throw SystemError(call, EIO) }
        // Outside the lock, because a plan may use the store.
        let fault = numbered.plan(call, numbered.number, numbered.ofKind)
        if call.isChange, state.withLockedValue({ $0.isReadOnly }) { throw SystemError(call, EROFS) }
        if fault?.isDeadly == true { state.withLockedValue { $0.isDead = true } }
        switch fault {
        case nil: return try body(false)
        case .short: return try body(true)
        case .fail(let code): throw SystemError(call, code)
        case .die: throw SystemError(call, EIO)
        case .dieAfter:
            _ = try body(false)
            throw SystemError(call, EIO)
        }
    }

    private func opened(
        _ call: SystemCall, _ body: () throws(SystemError) -> Int32
    ) throws(SystemError) -> Int32 {
        var descriptor: Int32?
        do throws(SystemError) {
            return try perform(call) { _ throws(SystemError) in
                let opened = try body()
                state.withLockedValue { $0.descriptors += 1 }
                descriptor = opened
                return opened
            }
        } catch {
            if let descriptor { try close(descriptor) }
            throw error
        }
    }

    func open(_ name: FileName, in directory: Int32, for purpose: OpenPurpose) throws(SystemError) -> Int32 {
        try opened(.open) { () throws(SystemError) in
            if purpose.isForWriting, state.withLockedValue({ $0.isReadOnly }) { throw SystemError(.open, EROFS) }
            return try real.open(name, in: directory, for: purpose)
        }
    }

    /// All files count as cached, on any file system, unless the plan has a fault.
    func openCached(_ path: FileName, in directory: Int32) throws(SystemError) -> Int32 {
        try opened(.openCached) { () throws(SystemError) in try real.open(path, in: directory, for: .reading) }
    }

    func isRemote(_ descriptor: Int32) -> Bool { real.isRemote(descriptor) }

    func blockSize(_ descriptor: Int32) -> Int { real.blockSize(descriptor) }

    func makeDirectory(_ name: FileName, in directory: Int32) throws(SystemError) {
        try perform(.makeDirectory) { _ throws(SystemError) in try real.makeDirectory(name, in: directory) }
    }

    func rename(
        _ name: FileName, in directory: Int32, to newName: FileName, in newDirectory: Int32
    ) throws(SystemError) {
        try perform(.rename) { _ throws(SystemError) in
            try real.rename(name, in: directory, to: newName, in: newDirectory)
        }
    }

    func exchange(_ name: FileName, with other: FileName, in directory: Int32) throws(SystemError) {
        try perform(.exchange) { _ throws(SystemError) in
            try real.exchange(name, with: other, in: directory)
        }
    }

    func unlink(_ name: FileName, in directory: Int32) throws(SystemError) {
        try perform(.unlink) { _ throws(SystemError) in try real.unlink(name, in: directory) }
    }

    func removeDirectory(_ name: FileName, in directory: Int32) throws(SystemError) {
        try perform(.removeDirectory) { _ throws(SystemError) in try real.removeDirectory(name, in: directory) }
    }

    func status(of descriptor: Int32) throws(SystemError) -> FileStatus {
        try perform(.statusOfDescriptor) { _ throws(SystemError) in
            var status = try real.status(of: descriptor)
            (status.owner, status.group) = state.withLockedValue {
                ($0.owner ?? status.owner, $0.group ?? status.group)
            }
            return status
        }
    }

    func status(of name: FileName, in directory: Int32) throws(SystemError) -> FileStatus {
        try perform(.statusOfName) { _ throws(SystemError) in try real.status(of: name, in: directory) }
    }

    func read(
        _ descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
    ) throws(SystemError) -> Int {
        try perform(.read) { isShort throws(SystemError) in
            try real.read(descriptor, into: isShort ? .init(rebasing: buffer.prefix(1)) : buffer, at: offset)
        }
    }

    func readCached(
        _ descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
    ) throws(SystemError) -> Int {
        try perform(.readCached) { isShort throws(SystemError) in
            try real.read(descriptor, into: isShort ? .init(rebasing: buffer.prefix(1)) : buffer, at: offset)
        }
    }

    func write(
        _ descriptor: Int32, _ bytes: UnsafeRawBufferPointer, at offset: Int64
    ) throws(SystemError) -> Int {
        try perform(.write) { isShort throws(SystemError) in
            try real.write(descriptor, isShort ? .init(rebasing: bytes.prefix(1)) : bytes, at: offset)
        }
    }

    func sync(_ descriptor: Int32) throws(SystemError) {
        try perform(.sync) { _ throws(SystemError) in try real.sync(descriptor) }
    }

    func list(_ descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer) throws(SystemError) -> Int {
        try perform(.list) { _ throws(SystemError) in try real.list(descriptor, into: buffer) }
    }

    func lock(_ descriptor: Int32) throws(SystemError) {
        try perform(.lock) { _ throws(SystemError) in try real.lock(descriptor) }
    }

    func touch(_ descriptor: Int32, at seconds: Int64) throws(SystemError) {
        try perform(.touch) { _ throws(SystemError) in try real.touch(descriptor, at: seconds) }
    }

    func close(_ descriptor: Int32) throws(SystemError) {
        state.withLockedValue { $0.descriptors -= 1 }
        try real.close(descriptor)
    }
}

extension SystemCall {
    /// Whether a read-only file system rejects the call.
    fileprivate var isChange: Bool {
        switch self {
        case .makeDirectory, .rename, .exchange, .unlink, .removeDirectory, .write, .sync, .touch: true
        case .open, .openCached, .statusOfDescriptor, .statusOfName, .read, .readCached, .list, .lock, .close: false
        }
    }
}

extension OpenPurpose {
    fileprivate var isForWriting: Bool {
        switch self {
        case .creating, .overwriting, .keeping: true
        case .root, .directory, .reading: false
        }
    }
}
