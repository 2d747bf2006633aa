import CLinux
import Glibc

/// A failed system call with its errno.
public struct SystemError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The attempted action, such as `bind` or `open /etc/thumbcached/thumbcached.toml`.
    public let action: String
    public let code: CInt
    /// Whether the description contains the name of the errno, which helps beside the name of a call.
    private let namesCode: Bool

    public init(_ action: String, code: CInt = errno) {
        (self.action, self.code, namesCode) = (action, code, false)
    }

    /// - Parameter call: its name in section 2 of the manual.
    public init(call: String, code: CInt) { (action, self.code, namesCode) = (call, code, true) }

    /// The text of the errno. strerror is thread-safe in glibc since 2.32.
    public var reason: String { String(cString: strerror(code)) }

    /// Such as `bind: Permission denied`; for a named call, `renameat: EIO (Input/output error)`.
    public var description: String {
        guard namesCode else { return "\(action): \(reason)" }
        return "\(action): \(clinux_error_name(code).map { String(cString: $0) } ?? "error \(code)") (\(reason))"
    }
}

/// Retries a call interrupted by a signal. Inlined, because a hit from disk makes several calls.
@inlinable public func retryingInterrupts<Result>(
    _ call: () throws(SystemError) -> Result
) throws(SystemError) -> Result {
    while true {
        do throws(SystemError) {
            return try call()
        } catch {
            if error.code != EINTR { throw error }
        }
    }
}

/// Retries a system call interrupted by a signal. The result is never -1.
@inlinable public func retryingInterrupts<Result: SignedInteger>(
    _ action: @autoclosure () -> String, _ call: () -> Result
) throws(SystemError) -> Result {
    try retryingInterrupts { () throws(SystemError) in
        let result = call()
        guard result == -1 else { return result }
        let code = errno
        throw SystemError(action(), code: code)
    }
}

/// Returns the time of a clock of clock_gettime(2). Makes no system call; takes some 30 ns.
public func nanoseconds(of clock: clockid_t) -> Int64 {
    var moment = timespec()
    clock_gettime(clock, &moment)
    return Int64(moment.tv_sec) * 1_000_000_000 + Int64(moment.tv_nsec)
}
