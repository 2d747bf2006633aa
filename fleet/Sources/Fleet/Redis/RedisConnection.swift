import LinuxSupport
import NIOCore
@_spi(Wire) import Thumbcache
import ThumbcacheProtocol

/// A failed Redis command or connection.
package struct RedisError: Error, CustomStringConvertible {
    package let description: String

    package init(_ description: String) { self.description = description }

    package init(_ error: ThumbcacheError, _ address: RedisAddress) {
        switch error {
        case .server(let code, let message): description = "\(address) replied: \(oneLine("\(code) \(message)"))"
        case .timeout: description = "\(address) timed out"
        case .protocolViolation(let reason): description = "\(address) does not speak RESP: \(reason)"
        case .cancelled: description = "cancelled"
        default: description = "the connection to \(address) was lost"
        }
    }
}

/// An authenticated connection to a Redis or Valkey server.
package struct RedisConnection: Sendable {
    let wire: WireConnection
    package let address: RedisAddress
    let timeout: Duration

    /// Bytes of one reply. A snapshot has at most 100 entries of at most 1,000 profiles each.
    static let longestReply = 128 << 20

    /// Sends a command and returns its reply. Throws error replies.
    /// - Parameter extra: added to the timeout, for commands that block.
    @discardableResult
    package func send(_ words: [ByteBuffer], extra: Duration = .zero) async throws(RedisError) -> Value {
        do throws(ThumbcacheError) {
            // Closed on a timeout: a late reply would be taken for that of the next command.
            return try await within(timeout + extra) { [wire] () async throws(ThumbcacheError) in
                try await wire.reply(to: ThumbcacheRequest(words), closing: true)
            }.orServerError()
        } catch {
            throw RedisError(error, address)
        }
    }

    @discardableResult
    package func send(_ words: String..., extra: Duration = .zero) async throws(RedisError) -> Value {
        try await send(words.map(ByteBuffer.init(string:)), extra: extra)
    }

    /// Sends several commands in one write and returns all replies. Throws the first error reply.
    @discardableResult
    package func pipeline(_ commands: [[String]]) async throws(RedisError) -> [Value] {
        let requests = commands.map { ThumbcacheRequest($0.map(ByteBuffer.init(string:))) }
        do throws(ThumbcacheError) {
            let replies = try await within(timeout) { [wire] () async throws(ThumbcacheError) in
                try await wire.replies(to: requests)
            }
            for reply in replies { _ = try reply.orServerError() }
            return replies
        } catch {
            throw RedisError(error, address)
        }
    }

    package func close() { wire.close() }

    /// Authenticates the connection and names it.
    /// - Parameter name: shown by CLIENT LIST.
    func authenticate(_ name: String, user: String, password: Secret?) async throws(RedisError) {
        var words = ["HELLO", "3"].map(ByteBuffer.init(string:))
        if let password {
            words += ["AUTH", user.isEmpty ? "default" : user].map(ByteBuffer.init(string:))
            words.append(password.withBytes { ByteBuffer(bytes: $0) })
        }
        try await send(words + ["SETNAME", name].map(ByteBuffer.init(string:)))
    }

    func requireMaster() async throws(RedisError) {
        let role = try await send("ROLE").elements?.first?.text ?? "unknown"
        guard role == "master" else { throw RedisError("\(address) is not a master; its role is \(oneLine(role))") }
    }
}
