import Foundation
import Glibc

/// A redis-server on a Unix socket, without persistence.
final class RedisServer {
    private let machine: Machine
    let name: String
    private let arguments: [String]
    private(set) var process: ChildProcess?

    var socket: String { machine.path("\(name).sock") }

    /// - Parameter options: further command-line options of redis-server.
    init(_ machine: Machine, _ name: String = "redis", _ options: [String] = []) throws {
        (self.machine, self.name) = (machine, name)
        let directory = try machine.makeDirectory(name)
        // Of an option given twice, the last one applies.
        let usual = ["--port", "0", "--save", "", "--appendonly", "no"]
        arguments =
            ["redis-server"] + usual
            + ["--unixsocket", machine.path("\(name).sock"), "--dir", directory, "--daemonize", "no"] + options
        try start()
    }

    func start() throws {
        process = try machine.start(arguments, output: .file(machine.path("\(name).log")))
        try eventually("redis answers") {
            guard let client = try? RESPClient(socket) else { return false }
            let reply = try client.call("PING")
            if case .error("NOAUTH", _) = reply { return true }
            return reply == .simple("PONG")
        }
    }

    /// Kills the server with SIGKILL. Its data is lost.
    func kill() {
        process?.end()
        if let process { machine.forget(process) }
        unlink(socket)
    }

    func connect() throws -> RESPClient { try RESPClient(socket) }
}
