import Foundation
import Glibc

/// What ends a test early: its own machinery did not work, or the daemon did not do what the rest rests on.
struct Failure: Error, CustomStringConvertible {
    var description: String
    /// errno, where a system call failed.
    var code: CInt?

    init(_ description: String) { self.description = description }

    /// The system call that failed, and why.
    init(systemCall: String, _ code: CInt = errno) {
        description = "\(systemCall): \(String(cString: strerror(code)))"
        self.code = code
    }
}

/// How long the tests wait for something that is sure to come from a daemon that works. Long, because it is spent only
/// where the test fails anyhow, and because a sanitizer and a busy machine slow everything.
let longestWait = 30.0

/// Asks again and again, for what no event tells: the state of another process and its files.
func eventually(_ what: String, within seconds: Double = longestWait, _ isSo: () throws -> Bool) throws {
    let deadline = ContinuousClock.now + .seconds(seconds)
    while try !isSo() {
        if ContinuousClock.now > deadline { throw Failure("not within \(seconds) s: \(what)") }
        usleep(2_000)
    }
}

/// How long something took, in milliseconds.
func milliseconds(_ body: () throws -> Void) rethrows -> Double {
    let duration = try ContinuousClock().measure(body)
    return Double(duration.components.seconds) * 1e3 + Double(duration.components.attoseconds) / 1e15
}
