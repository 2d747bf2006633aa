import Foundation
import Glibc

/// An OpenID Connect provider that uses another implementation (provider.py).
final class Provider {
    let port: UInt16
    private let directory: String

    init(_ machine: Machine) throws {
        let python = "\(Files.repository)/.build/python-client/bin/python"
        guard access(python, X_OK) == 0 else {
            throw Failure("\(python) is missing: run tools/install-python-client, as make test does")
        }
        directory = try machine.makeDirectory("provider")
        _ = try machine.start(
            [python, "-W", "ignore", "\(Files.repository)/fleet/Tests/FleetEndToEndTests/provider.py", directory],
            errors: .file("\(directory)/log"))
        let place = "\(directory)/port"
        try eventually("the provider serves") { access(place, F_OK) == 0 }
        guard let port = UInt16(try readText(place)) else { throw Failure("no port") }
        self.port = port
    }

    /// Serves the same with TLS on another port. Returns the port.
    func serveTLS(certificate: String, key: String) throws -> UInt16 {
        let answer = try getHTTP(port, "/tls?certificate=\(certificate)&key=\(key)").body
        guard let port = UInt16(answer) else { throw Failure("the provider does not serve TLS: \(answer)") }
        return port
    }

    /// Sets the behavior of the JWKS endpoint.
    func setKeys(_ how: String) throws { try write(how, to: "\(directory)/keys") }

    /// The number of requests to the JWKS endpoint.
    var asked: Int { (try? read("\(directory)/asked")).flatMap { Int(String(decoding: $0, as: UTF8.self)) } ?? 0 }

    func token(_ user: String) throws -> String { try getHTTP(port, "/token?sub=\(user)").body }
    func rotate() throws { _ = try getHTTP(port, "/rotate") }

    /// Sends a logout token to a URL. Returns the status, Cache-Control and the body of the response.
    func logOut(_ user: String, at url: String, authority: String? = nil) throws -> String {
        try getHTTP(port, "/logout?sub=\(user)&to=\(url)" + (authority.map { "&ca=\($0)" } ?? "")).body
    }
}

/// thumbcached-oidc and its provider.
final class LogoutReceiver {
    let port: UInt16
    let provider: Provider
    private let machine: Machine
    private(set) var process: ChildProcess?
    /// The Unix socket to use instead of the port.
    var socket: String?
    var settings = Settings()

    static let program = "\(Files.programs)/thumbcached-oidc"

    init(_ machine: Machine, _ redis: RedisServer, _ adjust: (LogoutReceiver) throws -> Void = { _ in }) throws {
        self.machine = machine
        port = try freePort()
        provider = try Provider(machine)
        settings["http", "listen"] = "127.0.0.1:\(Int(port))"
        settings["oidc", "issuer"] = "https://id.example.org"
        settings["oidc", "client-id"] = "thumbnails"
        settings["oidc", "jwks"] = "http://127.0.0.1:\(Int(provider.port))/keys"
        settings["oidc", "user"] = "{sub}@example.org"
        settings["redis", "address"] = .string(redis.socket)
        settings["redis", "timeout"] = "2s"
        try adjust(self)
        try start()
    }

    var url: String { "http://127.0.0.1:\(port)/backchannel-logout" }
    var log: String { String(decoding: (try? read(machine.path("oidc.log"))) ?? [], as: UTF8.self) }

    private func start() throws {
        let configuration = machine.path("oidc.toml")
        try write(settings.toml, to: configuration)
        // No proxy from the environment may be used. None listens on port 1.
        let proxy = ["all_proxy": "http://127.0.0.1:1", "no_proxy": ""]
        process = try machine.start(
            [Self.program, "--config", configuration],
            environment: ProcessInfo.processInfo.environment.merging(proxy) { $1 },
            errors: .file(machine.path("oidc.log")))
        try eventually("thumbcached-oidc serves; log:\n\(log)") { log.contains("message=serving") }
    }

    /// Connects to the port, or to the Unix socket if one is set.
    private func connect() throws -> CInt {
        guard let socket else { return try connectTCP(port) }
        let descriptor = Glibc.socket(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0)
        guard connectUnix(descriptor, socket) == 0 else { throw Failure(systemCall: "connect to \(socket)") }
        return descriptor
    }

    /// Sends bytes over a new connection and reads the response until the peer closes it.
    func send(_ request: String) throws -> (status: Int, text: String) {
        let connection = try connect()
        defer { close(connection) }
        let bytes = Array(request.utf8)
        guard write(connection, bytes, bytes.count) == bytes.count else { throw Failure(systemCall: "write") }
        let text = try readToEnd(connection)
        return (text.split(separator: " ", maxSplits: 2).dropFirst().first.flatMap { Int($0) } ?? 0, text)
    }

    func post(_ token: String, forwardedFor: String? = nil) throws -> (status: Int, text: String) {
        let body = "logout_token=\(token)"
        return try send(
            "POST /backchannel-logout HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(body.utf8.count)\r\n"
                + (forwardedFor.map { "X-Forwarded-For: \($0)\r\n" } ?? "")
                + "Content-Type: application/x-www-form-urlencoded\r\n\r\n\(body)")
    }
}

/// Reads until the peer closes the connection.
func readToEnd(_ connection: CInt) throws -> String {
    var answer: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 65_536)
    while case let count = Glibc.read(connection, &buffer, buffer.count), count > 0 { answer += buffer[..<count] }
    return String(decoding: answer, as: UTF8.self)
}
