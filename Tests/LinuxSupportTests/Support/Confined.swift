import CLinux
import Glibc
import LinuxSupport
import NIOConcurrencyHelpers
import Testing

/// Runs `body` on a thread that is confined alone, and returns what it says. The kernel counts Landlock, no_new_privs
/// and filters by threads, so that the test's process goes on as it was.
func confined<Answer: Sendable>(
    _ confinement: Confinement, _ body: @escaping @Sendable () throws -> Answer
) throws -> Answer {
    try onThread {
        _ = try confinement.apply()
        return try body()
    }
}

/// The same without confining.
func onThread<Answer: Sendable>(_ body: @escaping @Sendable () throws -> Answer) throws -> Answer {
    let answer = NIOLockedValueBox<Result<Answer, any Error>?>(nil)
    let thread = try startThread(named: "confined") {
        let result = Result { try body() }
        answer.withLockedValue { $0 = result }
    }
    pthread_join(thread, nil)
    return try #require(answer.withLockedValue { $0 }).get()
}

/// The errno of a call that failed, 0 of one that did not.
func failure<Number: SignedInteger>(_ call: () -> Number) -> CInt { call() == -1 ? errno : 0 }

/// The same of a call that makes a descriptor, which is closed again.
func failureToOpen(_ call: () -> CInt) -> CInt {
    let descriptor = call()
    guard descriptor != -1 else { return errno }
    close(descriptor)
    return 0
}

/// A directory with two directories in it, `one` and `two`, each with a file `file`. Removed with the value.
final class Scratch: Sendable {
    let path: String
    var one: String { path + "/one" }
    var two: String { path + "/two" }

    init() throws {
        var template = Array(
            ((getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp") + "/confined.XXXXXX").utf8CString)
        try #require(mkdtemp(&template) != nil)
        path = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        for directory in [one, two] {
            try #require(mkdir(directory, 0o700) == 0)
            try File(directory + "/file", O_CREAT | O_WRONLY, mode: 0o600).write(Array("bytes".utf8))
        }
    }

    deinit {
        for directory in [one, two] {
            for name in ["file", "moved", "linked", "made", "device"] { unlink("\(directory)/\(name)") }
            rmdir(directory)
        }
        rmdir(path)
    }
}

/// A process of the same account, started before anybody is confined; killed with the value.
final class Bystander: Sendable {
    let process: pid_t

    init() throws {
        var process = pid_t()
        let arguments = [strdup("sleep"), strdup("1000"), nil]
        defer { for argument in arguments { free(argument) } }
        try #require(posix_spawn(&process, "/bin/sleep", nil, nil, arguments, nil) == 0)
        self.process = process
    }

    deinit {
        kill(process, SIGKILL)
        waitpid(process, nil, 0)
    }
}

/// What the kernel of this machine has.
enum Kernel {
    static var landlock: CInt { clinux_landlock_version() }
}
