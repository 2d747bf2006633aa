import Foundation
import Glibc

/// A host of a fleet: a daemon and its relay.
final class FleetHost {
    let machine: Machine
    let name: String
    let daemon: Daemon
    var settings = Settings()
    /// The account of the relay; nil for the account that runs the tests, which is an admin of the daemon.
    var account: Account?
    private(set) var relay: ChildProcess?

    static let stream = "thumbcached:fleet"
    static let program = "\(Files.programs)/thumbcached-relay"

    init(_ machine: Machine, _ name: String, _ redis: RedisServer, _ adjust: (FleetHost) -> Void = { _ in }) throws {
        (self.machine, self.name) = (machine, name)
        daemon = Daemon(machine, name)
        settings["", "host"] = .string(name)
        settings["", "state"] = .string(machine.path("\(name)-relay"))
        settings["", "socket"] = .string(daemon.socket)
        settings["", "heartbeat"] = "100ms"
        settings["redis", "address"] = .string(redis.socket)
        adjust(self)
        try daemon.start()
        try startRelay()
    }

    var configuration: String { machine.path("\(name)-relay.toml") }
    var log: String { String(decoding: (try? read(machine.path("\(name)-relay.log"))) ?? [], as: UTF8.self) }

    func startRelay() throws {
        try write(settings.toml, to: configuration)
        let command = [Self.program, "run", "--config", configuration]
        relay = try machine.start(
            account?.running(command) ?? command, errors: .file(machine.path("\(name)-relay.log")))
    }

    /// kill -9
    func killRelay() {
        relay?.end()
        if let relay { machine.forget(relay) }
    }

    /// Whether the host has acknowledged the last entry of the stream.
    func isAtEnd(_ client: RESPClient, in stream: String = stream) throws -> Bool {
        guard let acknowledged = try acknowledged(client, in: stream) else { return false }
        guard case .array(let last) = try client.call("XREVRANGE", stream, "+", "-", "COUNT", "1") else { return false }
        // In an empty stream, the first position is saved after the first gap is closed.
        guard case .array(let entry)? = last.first else {
            return FileManager.default.fileExists(atPath: machine.path("\(name)-relay/position"))
        }
        return acknowledged == entry[0].text
    }

    func waitUntilAtEnd(_ client: RESPClient) throws {
        try eventually("\(name) has acknowledged all entries; relay log:\n\(log.suffix(2_000))") { try isAtEnd(client) }
    }

    /// The id of the last entry that the host has acknowledged.
    func acknowledged(_ client: RESPClient, in stream: String = stream) throws -> String? {
        try client.call("HGET", "\(stream):hosts", name).text?.split(separator: " ").first.map(String.init)
    }

    /// The users who are logged in.
    func users() throws -> [String] {
        guard case .array(let users) = try daemon.connect().call("USERS") else { return [] }
        return users.compactMap(\.text).sorted()
    }

    func logIn(_ users: String...) throws {
        let client = try daemon.connect()
        for user in users {
            guard try client.call("LOGIN", user) == .ok else { throw Failure("LOGIN \(user) failed") }
        }
    }
}
