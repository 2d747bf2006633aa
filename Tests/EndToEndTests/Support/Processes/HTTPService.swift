import Foundation

/// The built thumbcached-http.
final class HTTPService {
    let process: ChildProcess
    private let machine: Machine

    /// Starts the program and waits until it listens.
    /// - Parameters:
    ///   - settings: the configuration file.
    ///   - isReady: whether the program listens; by default, whether the port accepts connections.
    init(
        _ machine: Machine, _ settings: String, arguments: [String] = [], wrapper: [String] = [],
        environment: [String: String] = [:], passing: [CInt] = [], isReady: () throws -> Bool
    ) throws {
        self.machine = machine
        let file = machine.path("http-\(machine.nextNumber()).toml")
        try write(settings, to: file)
        process = try machine.start(
            wrapper + ["\(Files.programs)/thumbcached-http", "--config", file] + arguments,
            environment: ProcessInfo.processInfo.environment.merging(environment) { $1 },
            errors: .file(machine.path("http.log")), passing: passing)
        try eventually("thumbcached-http listens") {
            if let status = process.exitStatus() { throw Failure("thumbcached-http ended with status \(status)") }
            do { return try isReady() } catch is Failure { return false }
        }
    }

    /// A service for images on a port of 127.0.0.1.
    convenience init(
        _ machine: Machine, _ daemon: Daemon, port: UInt16, _ images: String, wrapper: [String] = []
    ) throws {
        let settings = "socket = \"\(daemon.socket)\"\n[images]\nlisten = \"127.0.0.1:\(port)\"\n\(images)\n"
        try self.init(machine, settings, wrapper: wrapper) { try getHTTP(port, "/").status == 404 }
    }

    func log() throws -> String { String(decoding: try read(machine.path("http.log")), as: UTF8.self) }
}

/// What curl received. Other tests in this process set a proxy in the environment.
struct Curl {
    let status: Int
    /// Names in lower case.
    let fields: [String: String]
    let body: [UInt8]

    /// Runs curl with these arguments.
    init(_ machine: Machine, _ arguments: String...) throws {
        let base = machine.path("curl-\(machine.nextNumber())")
        try write("", to: "\(base).body")
        let run = try machine.run(
            [
                "curl", "--noproxy", "*", "--silent", "--show-error", "--path-as-is", "-D", "\(base).head", "-o",
                "\(base).body",
            ] + arguments
        )
        guard run.status == 0 else { throw Failure("curl: \(run.summary)") }
        let lines = String(decoding: try read("\(base).head"), as: UTF8.self).split(separator: "\r\n")
        status = lines.first?.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0
        fields = lines.dropFirst().reduce(into: [:]) { fields, line in
            let parts = line.split(separator: ":", maxSplits: 1)
            if parts.count == 2 { fields[parts[0].lowercased()] = parts[1].trimmingCharacters(in: .whitespaces) }
        }
        body = try read("\(base).body")
    }

    var text: String { String(decoding: body, as: UTF8.self) }
}
