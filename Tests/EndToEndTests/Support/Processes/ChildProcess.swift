import CSpawn
import Foundation
import Glibc

/// A child process, waited for and signaled by its process id.
final class ChildProcess {
    /// What a standard stream is connected to.
    enum Stream {
        case null
        case file(String)
        case descriptor(CInt)
    }

    let pid: pid_t
    let arguments: [String]
    private var status: CInt?

    /// Starts a program: a path, or a name that is found on PATH or in the sbin directories.
    /// - Parameter passing: descriptors that the program inherits as 3, 4 and so on. It inherits no others.
    init(
        _ arguments: [String], environment: [String: String] = ProcessInfo.processInfo.environment,
        directory: String? = nil, input: Stream = .null, output: Stream = .null, errors: Stream = .null,
        passing: [CInt] = [], ownSession: Bool = false
    ) throws {
        self.arguments = arguments
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }

        // The program does not inherit ignored or blocked signals.
        var signals = sigset_t()
        sigemptyset(&signals)
        posix_spawnattr_setsigmask(&attributes, &signals)
        sigaddset(&signals, SIGPIPE)
        posix_spawnattr_setsigdefault(&attributes, &signals)
        let setSession: CInt = 0x80  // POSIX_SPAWN_SETSID, not imported from Glibc
        let flags = CInt(POSIX_SPAWN_SETSIGMASK) | CInt(POSIX_SPAWN_SETSIGDEF) | (ownSession ? setSession : 0)
        posix_spawnattr_setflags(&attributes, Int16(flags))

        // Duplicated to high numbers first, so that dup2 overwrites none of them.
        let parked = passing.map { fcntl($0, F_DUPFD_CLOEXEC, 100) }
        defer { for descriptor in parked { close(descriptor) } }
        for (number, stream) in [input, output, errors].enumerated() {
            let target = CInt(number)
            switch stream {
            case .null:
                posix_spawn_file_actions_addopen(&actions, target, "/dev/null", O_RDWR, 0)
            case .file(let path):
                let flags = number == 0 ? O_RDONLY : O_WRONLY | O_CREAT | O_APPEND
                posix_spawn_file_actions_addopen(&actions, target, path, flags, 0o600)
            case .descriptor(let descriptor):
                posix_spawn_file_actions_adddup2(&actions, descriptor, target)
            }
        }
        for (offset, descriptor) in parked.enumerated() {
            posix_spawn_file_actions_adddup2(&actions, descriptor, CInt(3 + offset))
        }
        cspawn_close_from(&actions, CInt(3 + parked.count))
        if let directory { cspawn_change_directory(&actions, directory) }

        let program = try Self.path(of: arguments[0])
        var argv = arguments.map { strdup($0) } + [nil]
        var envp = environment.map { strdup("\($0)=\($1)") } + [nil]
        defer { for string in argv + envp { free(string) } }
        var pid = pid_t()
        let code = posix_spawn(&pid, program, &actions, &attributes, &argv, &envp)
        guard code == 0 else { throw Failure(systemCall: "starting \(program)", code) }
        self.pid = pid
    }

    static func path(of program: String) throws -> String {
        if program.contains("/") { return program }
        let path = (ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin") + ":/usr/local/sbin:/usr/sbin:/sbin"
        for directory in path.split(separator: ":") {
            let candidate = "\(directory)/\(program)"
            if access(candidate, X_OK) == 0 { return candidate }
        }
        throw Failure("\(program) is not installed: tools/install-dependencies test")
    }

    func signal(_ number: CInt) {
        if status == nil { kill(pid, number) }
    }

    /// Stops all threads with SIGSTOP, and returns when the process has stopped.
    func suspend() throws {
        signal(SIGSTOP)
        var found = siginfo_t()
        while waitid(P_PID, id_t(pid), &found, WSTOPPED | WEXITED | WNOWAIT) != 0 {
            guard errno == EINTR else { throw Failure("waitid of process \(pid): errno \(errno)") }
        }
        guard found.si_code == CLD_STOPPED else { throw Failure("process \(pid) has ended and cannot be stopped") }
    }

    /// The exit status, or 128 plus the number of the fatal signal; nil while the process runs.
    func exitStatus() -> CInt? {
        if status == nil {
            var raw: CInt = 0
            if waitpid(pid, &raw, WNOHANG) == pid {
                let signal = raw & 0x7f
                status = signal == 0 ? (raw >> 8) & 0xff : 128 + signal
            }
        }
        return status
    }

    @discardableResult
    func waitForExit(within seconds: Double = longestWait) throws -> CInt {
        try eventually("\(arguments[0]) ends", within: seconds) { exitStatus() != nil }
        return status ?? -1
    }

    /// Kills the process if it runs, and reaps it.
    func end() {
        signal(SIGKILL)
        while exitStatus() == nil { usleep(500) }
    }
}

/// Exit status and output of a program.
struct Finished {
    var status: CInt
    var output: [UInt8]
    var errors: String

    var text: String { String(decoding: output, as: UTF8.self) }
    /// Status and both streams, for the message of a failed expectation.
    var summary: String { "status \(status)\n\(text)\n\(errors)" }
}

extension Machine {
    /// Runs a program and throws if its exit status is not 0.
    @discardableResult
    func runSuccessfully(
        _ arguments: [String], input: [UInt8] = [], environment: [String: String] = [:], directory: String? = nil,
        within seconds: Double = 60
    ) throws -> Finished {
        let finished = try run(
            arguments, input: input, environment: environment, directory: directory, within: seconds)
        guard finished.status == 0 else { throw Failure("\(arguments): \(finished.summary)") }
        return finished
    }

    /// Runs a program and waits for its exit.
    func run(
        _ arguments: [String], input: [UInt8] = [], environment: [String: String] = [:], directory: String? = nil,
        within seconds: Double = 60
    ) throws -> Finished {
        let base = path("run-\(nextNumber())")
        try write(input, to: "\(base).in")
        let merged = ProcessInfo.processInfo.environment.merging(environment) { $1 }
        let child = try start(
            arguments, environment: merged, directory: directory, input: .file("\(base).in"),
            output: .file("\(base).out"), errors: .file("\(base).err"))
        let status = try child.waitForExit(within: seconds)
        forget(child)
        let finished = Finished(
            status: status, output: try read("\(base).out"),
            errors: try readText("\(base).err"))
        for suffix in ["in", "out", "err"] { unlink("\(base).\(suffix)") }
        return finished
    }
}
