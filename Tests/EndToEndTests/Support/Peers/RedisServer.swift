import Foundation
import Glibc

/// A real redis-server, with nothing on disk, on a Unix socket.
final class RedisServer {
    private let machine: Machine
    let name: String
    private let arguments: [String]
    private(set) var process: ChildProcess?

    var socket: String { machine.path("\(name).sock") }

    /// - Parameter options: of redis-server's configuration, each behind its `--name`.
    init(_ machine: Machine, _ name: String = "redis", _ options: [String] = []) throws {
        (self.machine, self.name) = (machine, name)
        let directory = try machine.makeDirectory(name)
        // Later options win.
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

    /// kill -9; whatever was in memory is gone.
    func kill() {
        process?.end()
        if let process { machine.forget(process) }
        unlink(socket)
    }

    func connect() throws -> RESPClient { try RESPClient(socket) }
}
