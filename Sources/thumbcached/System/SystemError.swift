import Glibc

/// A system call that failed: errno, caught where it happened.
struct SystemError: Error, Equatable, CustomStringConvertible {
    /// What was attempted, as in `bind` or `open /etc/thumbcached/thumbcached.toml`.
    let action: String
    /// The errno.
    let code: Int32

    init(_ action: String, code: Int32 = errno) {
        self.action = action
        self.code = code
    }

    /// The system's own words for the errno. (glibc's strerror is safe from any thread since 2.32.)
    var reason: String { String(cString: strerror(code)) }

    var description: String { "\(action): \(reason)" }
}

/// Repeats a system call that a signal interrupted. The result is never -1.
func retryingInterrupts<Result: SignedInteger>(
    _ action: @autoclosure () -> String, _ call: () -> Result
) throws(SystemError) -> Result {
    while true {
        let result = call()
        if result != -1 { return result }
        let code = errno
        if code != EINTR { throw SystemError(action(), code: code) }
    }
}
