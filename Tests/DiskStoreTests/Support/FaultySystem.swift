import DiskStore
import Glibc
import LinuxSupport
import NIOConcurrencyHelpers

/// The machine's file system, or another, with faults in it: calls that fail, writes that are short, calls that a
/// signal interrupts, and a death after which nothing is done any more, so that a restart can be tried on what is left.
final class FaultySystem: FileSystem {
    enum Fault {
        /// The call fails with this error and does nothing.
        case fail(Int32)
        /// A write takes a byte, a read gives a byte.
        case short
        /// This call and all after it fail: the process is dead. Descriptors are closed, as the kernel would.
        case die
        /// The call is done, and then the process is dead.
        case dieAfter

        fileprivate var isDeadly: Bool {
            switch self {
            case .die, .dieAfter: true
            case .fail, .short: false
            }
        }
    }

    /// What happens to a call, numbered from 1, in all and of its kind; nil for nothing.
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

    /// Calls so far, closes not counted.
    var calls: Int { state.withLockedValue { $0.calls } }

    var isDead: Bool { state.withLockedValue { $0.isDead } }

    /// Files and directories that are open through this.
    var descriptors: Int { state.withLockedValue { $0.descriptors } }

    func count(of call: SystemCall) -> Int { state.withLockedValue { $0.byCall[call] ?? 0 } }

    /// From here on `plan` says what happens to each call; numbers begin anew.
    func plan(_ plan: @escaping Plan) {
        state.withLockedValue { state in
            state.calls = 0
            state.byCall = [:]
            state.plan = plan
        }
    }

    /// From here on whatever is open is said to belong to this uid and gid; nil for those that it does belong to.
    func pretendOwner(_ uid: UInt32?, group: UInt32? = nil) {
        state.withLockedValue { state in
            state.owner = uid
            state.group = group
        }
    }

    /// From here on nothing can be changed, as after `mount -o remount,ro` or an error of the disk; or it can again.
    func setReadOnly(_ isReadOnly: Bool = true) {
        state.withLockedValue { $0.isReadOnly = isReadOnly }
    }

    /// Nothing goes wrong from here on.
    func heal() {
        setReadOnly(false)
        plan { _, _, _ in nil }
    }

    /// What to do: go on, go on shortened, or throw. The closure runs after the call.
    private func step(_ call: SystemCall) throws(SystemError) -> (isShort: Bool, after: () throws(SystemError) -> Void)
    {
        let numbered = state.withLockedValue { state -> (plan: Plan, number: Int, ofKind: Int)? in
            if state.isDead { return nil }
            state.calls += 1
            state.byCall[call, default: 0] += 1
            return (state.plan, state.calls, state.byCall[call] ?? 0)
        }
        guard let numbered else { throw SystemError(call, EIO) }
        // Outside the lock: a plan may use the store itself.
        let fault = numbered.plan(call, numbered.number, numbered.ofKind)
        if call.isChange, state.withLockedValue({ $0.isReadOnly }) { throw SystemError(call, EROFS) }
        if fault?.isDeadly == true { state.withLockedValue { $0.isDead = true } }
        switch fault {
        case nil: return (false, { () throws(SystemError) in })
        case .short: return (true, { () throws(SystemError) in })
        case .fail(let code): throw SystemError(call, code)
        case .die: throw SystemError(call, EIO)
        case .dieAfter: return (false, { () throws(SystemError) in throw SystemError(call, EIO) })
        }
    }

    func open(_ name: FileName, in directory: Int32, for purpose: OpenPurpose) throws(SystemError) -> Int32 {
        let step = try step(.open)
        if purpose.isForWriting, state.withLockedValue({ $0.isReadOnly }) { throw SystemError(.open, EROFS) }
        let descriptor = try real.open(name, in: directory, for: purpose)
        state.withLockedValue { $0.descriptors += 1 }
        do throws(SystemError) {
            try step.after()
        } catch {
            try close(descriptor)
            throw error
        }
        return descriptor
    }

    /// Here everything is in the kernel's memory, on any file system, unless the plan says otherwise.
    func openCached(_ path: FileName, in directory: Int32) throws(SystemError) -> Int32 {
        let step = try step(.openCached)
        let descriptor = try real.open(path, in: directory, for: .reading)
        state.withLockedValue { $0.descriptors += 1 }
        do throws(SystemError) {
            try step.after()
        } catch {
            try close(descriptor)
            throw error
        }
        return descriptor
    }

    func isRemote(_ descriptor: Int32) -> Bool { real.isRemote(descriptor) }

    func blockSize(_ descriptor: Int32) -> Int { real.blockSize(descriptor) }

    func makeDirectory(_ name: FileName, in directory: Int32) throws(SystemError) {
        let step = try step(.makeDirectory)
        try real.makeDirectory(name, in: directory)
        try step.after()
    }

    func rename(
        _ name: FileName, in directory: Int32, to newName: FileName, in newDirectory: Int32
    ) throws(SystemError) {
        let step = try step(.rename)
        try real.rename(name, in: directory, to: newName, in: newDirectory)
        try step.after()
    }

    func exchange(
        _ name: FileName, in directory: Int32, with other: FileName, in otherDirectory: Int32
    ) throws(SystemError) {
        let step = try step(.exchange)
        try real.exchange(name, in: directory, with: other, in: otherDirectory)
        try step.after()
    }

    func unlink(_ name: FileName, in directory: Int32) throws(SystemError) {
        let step = try step(.unlink)
        try real.unlink(name, in: directory)
        try step.after()
    }

    func removeDirectory(_ name: FileName, in directory: Int32) throws(SystemError) {
        let step = try step(.removeDirectory)
        try real.removeDirectory(name, in: directory)
        try step.after()
    }

    func status(of descriptor: Int32) throws(SystemError) -> FileStatus {
        let step = try step(.statusOfDescriptor)
        var status = try real.status(of: descriptor)
        (status.owner, status.group) = state.withLockedValue { ($0.owner ?? status.owner, $0.group ?? status.group) }
        try step.after()
        return status
    }

    func status(of name: FileName, in directory: Int32) throws(SystemError) -> FileStatus {
        let step = try step(.statusOfName)
        let status = try real.status(of: name, in: directory)
        try step.after()
        return status
    }

    func read(
        _ descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
    ) throws(SystemError) -> Int {
        let step = try step(.read)
        let part = step.isShort ? UnsafeMutableRawBufferPointer(rebasing: buffer.prefix(1)) : buffer
        let count = try real.read(descriptor, into: part, at: offset)
        try step.after()
        return count
    }

    func readCached(
        _ descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
    ) throws(SystemError) -> Int {
        let step = try step(.readCached)
        let part = step.isShort ? UnsafeMutableRawBufferPointer(rebasing: buffer.prefix(1)) : buffer
        let count = try real.read(descriptor, into: part, at: offset)
        try step.after()
        return count
    }

    func write(
        _ descriptor: Int32, _ bytes: UnsafeRawBufferPointer, at offset: Int64
    ) throws(SystemError) -> Int {
        let step = try step(.write)
        let part = step.isShort ? UnsafeRawBufferPointer(rebasing: bytes.prefix(1)) : bytes
        let count = try real.write(descriptor, part, at: offset)
        try step.after()
        return count
    }

    func sync(_ descriptor: Int32) throws(SystemError) {
        let step = try step(.sync)
        try real.sync(descriptor)
        try step.after()
    }

    func list(_ descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer) throws(SystemError) -> Int {
        let step = try step(.list)
        let count = try real.list(descriptor, into: buffer)
        try step.after()
        return count
    }

    func lock(_ descriptor: Int32) throws(SystemError) {
        let step = try step(.lock)
        try real.lock(descriptor)
        try step.after()
    }

    func touch(_ descriptor: Int32, at seconds: Int64) throws(SystemError) {
        let step = try step(.touch)
        try real.touch(descriptor, at: seconds)
        try step.after()
    }

    func close(_ descriptor: Int32) throws(SystemError) {
        state.withLockedValue { $0.descriptors -= 1 }
        try real.close(descriptor)
    }
}

extension SystemCall {
    /// Whether a file system that is read-only refuses it.
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
