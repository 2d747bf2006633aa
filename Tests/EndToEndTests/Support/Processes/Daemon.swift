import Foundation
import Glibc

/// The built thumbcached with directories below the machine's. They remain when the daemon is restarted.
final class Daemon {
    let machine: Machine
    let name: String
    var settings = Settings()
    /// Appended to the configuration file.
    var extraConfiguration = ""
    /// Command that runs the program, such as `unshare` or `prlimit` with its arguments.
    var wrapper: [String] = []
    var environment: [String: String] = [:]
    private(set) var process: ChildProcess?

    static let program = "\(Files.programs)/thumbcached"

    init(_ machine: Machine, _ name: String) {
        self.machine = machine
        self.name = name
        for kind in ["cache", "state", "runtime"] { settings["storage", kind] = "\(machine.path("\(name)/\(kind)"))" }
        settings["socket", "path"] = "\(machine.path("\(name)/socket"))"
        // The daemon's own uid, which also runs the tests, is always an admin.
        settings["access", "admins"] = ["root"]
    }

    var directory: String { machine.path(name) }
    var socket: String { "\(directory)/socket" }
    var cache: String { "\(directory)/cache" }
    var state: String { "\(directory)/state" }
    var runtime: String { "\(directory)/runtime" }
    var configuration: String { "\(directory)/thumbcached.toml" }
    var logFile: String { machine.path("\(name).log") }
    var log: String { String(decoding: (try? read(logFile)) ?? [], as: UTF8.self) }
    var pid: pid_t { process?.pid ?? -1 }

    /// Starts the daemon and waits until it answers PING.
    func start(passing: [CInt] = []) throws {
        try launch(passing: passing)
        try eventually("\(name) answers on its socket; log:\n\(log.suffix(2_000))") {
            if let status = process?.exitStatus() {
                throw Failure("\(name) ended with status \(status) instead of starting; log:\n\(log.suffix(2_000))")
            }
            guard let client = try? RESPClient(socket) else { return false }
            return try client.call("PING") == .simple("PONG")
        }
    }

    /// Starts the daemon without waiting.
    func launch(passing: [CInt] = []) throws {
        try writeConfiguration()
        var merged = ProcessInfo.processInfo.environment.merging(environment) { $1 }
        if environment["NOTIFY_SOCKET"] == nil { merged["NOTIFY_SOCKET"] = nil }
        process = try machine.start(
            wrapper + [Self.program, "--config", configuration], environment: merged, errors: .file(logFile),
            passing: passing)
    }

    func writeConfiguration() throws {
        for directory in [directory, cache, state, runtime] where !Files.exists(directory) {
            guard mkdir(directory, 0o755) == 0 else { throw Failure(systemCall: "mkdir \(directory)") }
        }
        try write(settings.toml + extraConfiguration, to: configuration)
    }

    /// Connects, and waits until the daemon has accepted the connection.
    func connect() throws -> RESPClient {
        let client = try RESPClient(socket)
        guard try client.call("PING") == .simple("PONG") else { throw Failure("the daemon does not answer PING") }
        return client
    }

    func connect(loggedInAs user: String) throws -> RESPClient {
        let client = try connect()
        let reply = try client.call("LOGIN", user)
        guard reply == .ok else { throw Failure("LOGIN \(user): \(reply.brief)") }
        return client
    }

    /// Returns when the daemon has read what connections sent before: its event loop serves connections in the order
    /// in which they became readable.
    func waitForEarlierRequests() throws { _ = try connect() }

    /// Sets NOTIFY_SOCKET for the next start.
    func openNotifySocket() throws -> NotifySocket {
        let notify = try NotifySocket(machine)
        environment["NOTIFY_SOCKET"] = notify.path
        return notify
    }

    /// Sends SIGHUP and waits for the end of the reload.
    func reload(_ notify: NotifySocket) throws {
        process?.signal(SIGHUP)
        try notify.wait(for: "RELOADING=1")
        try notify.wait(for: "READY=1")
    }

    /// Starts the daemon with an inherited socket, as systemd does.
    func launch(listener: CInt) throws {
        wrapper = ["sh", "-c", "LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" \"$@\""]
        try launch(passing: [listener])
    }

    /// Sets the soft limit of open files, which also an unprivileged user may raise again.
    func limitDescriptors(to count: Int) throws {
        try machine.runSuccessfully(["prlimit", "--pid", "\(pid)", "--nofile=\(count):"])
    }

    /// Sends SIGTERM, waits for the exit and returns its status.
    @discardableResult
    func stop() throws -> CInt {
        process?.signal(SIGTERM)
        let status = try process?.waitForExit() ?? -1
        if let process { machine.forget(process) }
        return status
    }

    /// Kills the daemon with SIGKILL.
    func kill() {
        process?.end()
        if let process { machine.forget(process) }
    }

    func restart() throws {
        let status = try stop()
        guard status == 0 else { throw Failure("\(name) ended with status \(status) after SIGTERM") }
        try start()
    }

    /// All files of the store.
    var files: [String] { [cache, state, runtime].flatMap(Files.under) }

    /// The files of images, those in the trash included.
    var imageFiles: [String] { Files.under("\(cache)/users") + Files.under("\(cache)/trash") }

    /// The key and session files of all users.
    var loginFiles: [String] {
        files.filter { file in
            let parts = file.split(separator: "/").suffix(3)
            return ["keys", "sessions"].contains(parts.first) && parts.dropFirst().first.flatMap { UInt32($0) } != nil
        }
    }

    /// The value of a key in the reply to INFO.
    func info(_ key: String, _ client: RESPClient? = nil) throws -> String? {
        let text = try (client ?? connect()).call("INFO").text ?? ""
        return text.split(whereSeparator: \.isNewline).first { $0.hasPrefix(key + ":") }
            .map { String($0.dropFirst(key.count + 1)) }
    }

    /// Resident memory, in bytes.
    func residentMemory() throws -> Int {
        let status = try readText("/proc/\(pid)/status")
        let line = status.split(separator: "\n").first { $0.hasPrefix("VmRSS:") } ?? ""
        return (Int(line.split(separator: " ").dropFirst().first ?? "") ?? 0) * 1_024
    }
}

extension Machine {
    /// Starts a daemon and waits until it answers.
    func daemon(_ name: String = "daemon", _ adjust: (Daemon) -> Void = { _ in }) throws -> Daemon {
        let daemon = Daemon(self, name)
        adjust(daemon)
        try daemon.start()
        return daemon
    }
}
