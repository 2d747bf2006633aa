import Foundation
import Glibc

/// An error that ends a test early: the test support failed, or a precondition of the test did not hold.
struct Failure: Error, CustomStringConvertible {
    var description: String
    /// errno, if a system call failed.
    var code: CInt?

    init(_ description: String) { self.description = description }

    init(systemCall: String, _ code: CInt = errno) {
        description = "\(systemCall): \(String(cString: strerror(code)))"
        self.code = code
    }
}

/// Timeout in seconds for events that a working daemon certainly causes. Only a failing test waits that long;
/// sanitizers and busy machines need much of it.
let longestWait = 30.0

/// Polls a condition for which there is no event, such as the state of another process or its files.
func eventually(_ what: String, within seconds: Double = longestWait, _ isSo: () throws -> Bool) throws {
    let deadline = ContinuousClock.now + .seconds(seconds)
    while try !isSo() {
        if ContinuousClock.now > deadline { throw Failure("timeout after \(seconds) s: \(what)") }
        usleep(2_000)
    }
}

/// The duration of a call, in milliseconds.
func milliseconds(_ body: () throws -> Void) rethrows -> Double {
    let duration = try ContinuousClock().measure(body)
    return Double(duration.components.seconds) * 1e3 + Double(duration.components.attoseconds) / 1e15
}
