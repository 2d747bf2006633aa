import Foundation
import Glibc

/// thumbcached, as it was built, over directories of the test's machine. It can be ended and started again over them.
final class Daemon {
    let machine: Machine
    let name: String
    var settings = Settings()
    /// Before the program's own name: to run it as somebody else, or in a namespace.
    var wrapper: [String] = []
    var environment: [String: String] = [:]
    private(set) var process: ChildProcess?

    static let program = "\(Files.programs)/thumbcached"

    init(_ machine: Machine, _ name: String) {
        self.machine = machine
        self.name = name
        for kind in ["cache", "state", "runtime"] { settings["storage", kind] = "\(machine.path("\(name)/\(kind)"))" }
        settings["socket", "path"] = "\(machine.path("\(name)/socket"))"
        // The user who runs the tests is the daemon's own, and therefore an admin.
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

    /// Starts it and waits until it answers.
    func start(passing: [CInt] = []) throws {
        try launch(passing: passing)
        try eventually("\(name) answers on its socket; it said:\n\(log.suffix(2_000))") {
            if let status = process?.ending() {
                throw Failure("\(name) ended with status \(status) instead of starting; it said:\n\(log.suffix(2_000))")
            }
            guard let client = try? RESPClient(socket) else { return false }
            return try client.call("PING") == .simple("PONG")
        }
    }

    /// Starts it, whatever becomes of it.
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
        try write(settings.toml, to: configuration)
    }

    /// A connection that the daemon has accepted.
    func connect() throws -> RESPClient {
        let client = try RESPClient(socket)
        guard try client.call("PING") == .simple("PONG") else { throw Failure("the daemon does not answer PING") }
        return client
    }

    /// Returns when the daemon has taken up what connections had sent before: its event loop serves them in the order
    /// in which they became readable, and this one comes last.
    func takeUpEverythingSent() throws { _ = try connect() }

    /// Asks it to stop, and waits for that; gives the exit status.
    @discardableResult
    func stop() throws -> CInt {
        process?.signal(SIGTERM)
        let status = try process?.waitForEnd() ?? -1
        if let process { machine.forget(process) }
        return status
    }

    /// kill -9.
    func kill() {
        process?.end()
        if let process { machine.forget(process) }
    }

    func restart() throws {
        let status = try stop()
        guard status == 0 else { throw Failure("\(name) ended with status \(status) when asked to stop") }
        try start()
    }

    /// Every file in which something of a user could lie.
    var files: [String] { [cache, state, runtime].flatMap(Files.under) }

    /// The files that hold images, of users and in the trash.
    var imageFiles: [String] { Files.under("\(cache)/users") + Files.under("\(cache)/trash") }

    /// The files that make up log-ins: keys and sessions, each in a directory of its uid.
    var loginFiles: [String] {
        files.filter { file in
            let parts = file.split(separator: "/").suffix(3)
            return ["keys", "sessions"].contains(parts.first) && parts.dropFirst().first.flatMap { UInt32($0) } != nil
        }
    }

    /// A number of the daemon's INFO text.
    func info(_ key: String, _ client: RESPClient? = nil) throws -> String? {
        let text = try (client ?? connect()).call("INFO").text ?? ""
        return text.split(whereSeparator: \.isNewline).first { $0.hasPrefix(key + ":") }
            .map { String($0.dropFirst(key.count + 1)) }
    }

    /// Resident memory, in bytes.
    func residentMemory() throws -> Int {
        let status = String(decoding: try read("/proc/\(pid)/status"), as: UTF8.self)
        let line = status.split(separator: "\n").first { $0.hasPrefix("VmRSS:") } ?? ""
        return (Int(line.split(separator: " ").dropFirst().first ?? "") ?? 0) * 1_024
    }
}

extension Machine {
    /// A daemon that runs and answers.
    func daemon(_ name: String = "daemon", _ adjust: (Daemon) -> Void = { _ in }) throws -> Daemon {
        let daemon = Daemon(self, name)
        adjust(daemon)
        try daemon.start()
        return daemon
    }
}
