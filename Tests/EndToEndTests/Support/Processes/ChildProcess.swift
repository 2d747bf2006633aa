import CSpawn
import Foundation
import Glibc

/// A program that runs until it ends or is ended, always by its process id.
final class ChildProcess {
    /// Where a standard stream leads.
    enum Stream {
        case nowhere
        case file(String)
        case descriptor(CInt)
    }

    let pid: pid_t
    let arguments: [String]
    private var status: CInt?

    /// Starts a program: a path, or a name looked for on PATH and in the sbin directories.
    /// - Parameter passing: descriptors that the program gets as 3, 4 and so on. It gets no others.
    init(
        _ arguments: [String], environment: [String: String] = ProcessInfo.processInfo.environment,
        directory: String? = nil, input: Stream = .nowhere, output: Stream = .nowhere, errors: Stream = .nowhere,
        passing: [CInt] = [], ownSession: Bool = false
    ) throws {
        self.arguments = arguments
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }

        // Signals that this process ignores or blocks are nothing to hand on.
        var signals = sigset_t()
        sigemptyset(&signals)
        posix_spawnattr_setsigmask(&attributes, &signals)
        sigaddset(&signals, SIGPIPE)
        posix_spawnattr_setsigdefault(&attributes, &signals)
        let setSession: CInt = 0x80  // POSIX_SPAWN_SETSID, which Glibc hides
        let flags = CInt(POSIX_SPAWN_SETSIGMASK) | CInt(POSIX_SPAWN_SETSIGDEF) | (ownSession ? setSession : 0)
        posix_spawnattr_setflags(&attributes, Int16(flags))

        // Out of the way of the numbers they are to have, then onto them.
        let parked = passing.map { fcntl($0, F_DUPFD_CLOEXEC, 100) }
        defer { for descriptor in parked { close(descriptor) } }
        for (number, stream) in [input, output, errors].enumerated() {
            let target = CInt(number)
            switch stream {
            case .nowhere:
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

    /// Has all of its threads stand still. The signal alone is only on its way: a thread may go on until it has come.
    func standStill() throws {
        signal(SIGSTOP)
        var found = siginfo_t()
        while waitid(P_PID, id_t(pid), &found, WSTOPPED | WEXITED | WNOWAIT) != 0 {
            guard errno == EINTR else { throw Failure("waitid of process \(pid): errno \(errno)") }
        }
        guard found.si_code == CLD_STOPPED else { throw Failure("process \(pid) has ended and cannot stand still") }
    }

    /// How it ended, as a shell would say it: the exit status, or 128 and the signal. Null while it runs.
    func ending() -> CInt? {
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
    func waitForEnd(within seconds: Double = longestWait) throws -> CInt {
        try eventually("\(arguments[0]) ends", within: seconds) { ending() != nil }
        return status ?? -1
    }

    /// Ends it at once if it still runs.
    func end() {
        signal(SIGKILL)
        while ending() == nil { usleep(500) }
    }
}

/// What a program that ran to its end left.
struct Finished {
    var status: CInt
    var output: [UInt8]
    var errors: String

    var text: String { String(decoding: output, as: UTF8.self) }
    /// Both streams, for the message of a test that fails.
    var everything: String { "status \(status)\n\(text)\n\(errors)" }
}

/// Runs a program to its end, with its streams in files of the machine.
extension Machine {
    func run(
        _ arguments: [String], input: [UInt8] = [], environment: [String: String] = [:], directory: String? = nil,
        within seconds: Double = 60
    ) throws -> Finished {
        let base = path("run-\(takeNumber())")
        try write(input, to: "\(base).in")
        let merged = ProcessInfo.processInfo.environment.merging(environment) { $1 }
        let child = try start(
            arguments, environment: merged, directory: directory, input: .file("\(base).in"),
            output: .file("\(base).out"), errors: .file("\(base).err"))
        let status = try child.waitForEnd(within: seconds)
        forget(child)
        let finished = Finished(
            status: status, output: try read("\(base).out"),
            errors: String(decoding: try read("\(base).err"), as: UTF8.self))
        for suffix in ["in", "out", "err"] { unlink("\(base).\(suffix)") }
        return finished
    }
}
