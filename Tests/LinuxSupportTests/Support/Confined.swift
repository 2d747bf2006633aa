import CLinux
import Glibc
import LinuxSupport
import NIOConcurrencyHelpers
import Testing

/// Runs `body` on a confined thread and returns its result. Landlock, no_new_privs and filters apply to that thread
/// only.
func confined<Value: Sendable>(
    _ confinement: Confinement, _ body: @escaping @Sendable () throws -> Value
) throws -> Value {
    try onThread {
        _ = try confinement.apply()
        return try body()
    }
}

/// Runs `body` on a thread that is not confined.
func onThread<Value: Sendable>(_ body: @escaping @Sendable () throws -> Value) throws -> Value {
    let outcome = NIOLockedValueBox<Result<Value, any Error>?>(nil)
    let thread = try startThread(named: "confined") {
        let result = Result { try body() }
        outcome.withLockedValue { $0 = result }
    }
    pthread_join(thread, nil)
    return try #require(outcome.withLockedValue { $0 }).get()
}

/// The errno of a failed call, or 0.
func failure<Number: SignedInteger>(_ call: () -> Number) -> CInt { call() == -1 ? errno : 0 }

/// The same for a call that returns a descriptor, which is closed again.
func failureToOpen(_ call: () -> CInt) -> CInt {
    let descriptor = call()
    guard descriptor != -1 else { return errno }
    close(descriptor)
    return 0
}

/// A directory with subdirectories `one` and `two`, each with a file `file`. Removed at deinit.
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

/// A process of the same uid, started without confinement and killed at deinit.
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

/// Features of the running kernel.
enum Kernel {
    static var landlock: CInt { clinux_landlock_version() }
}
