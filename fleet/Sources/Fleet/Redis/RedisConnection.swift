import LinuxSupport
import NIOCore
@_spi(Wire) import Thumbcache
import ThumbcacheProtocol

/// Why a server did not do what it was asked.
package struct RedisError: Error, CustomStringConvertible {
    package let description: String

    package init(_ description: String) { self.description = description }

    package init(_ error: ThumbcacheError, _ address: RedisAddress) {
        switch error {
        case .server(let code, let message): description = "\(address) says: \(oneLine("\(code) \(message)"))"
        case .timeout: description = "\(address) did not answer in time"
        case .protocolViolation(let reason): description = "\(address) does not speak RESP: \(reason)"
        case .cancelled: description = "cancelled"
        default: description = "the connection to \(address) broke"
        }
    }
}

/// A connection to a Redis or Valkey server that has let us in.
package struct RedisConnection: Sendable {
    let wire: WireConnection
    package let address: RedisAddress
    let timeout: Duration

    /// Of one reply: a look has a hundred entries at most, each of a thousand profiles at most.
    static let longestReply = 128 << 20

    /// Sends a command and waits for its reply; an error reply is thrown.
    /// - Parameter extra: how much longer than usual it may take, for commands that block.
    @discardableResult
    package func call(_ words: [ByteBuffer], extra: Duration = .zero) async throws(RedisError) -> Value {
        do throws(ThumbcacheError) {
            // A connection on which a reply is late is of no use to anybody: it is closed.
            return try await within(timeout + extra) { [wire] () async throws(ThumbcacheError) in
                try await wire.reply(to: ThumbcacheRequest(words), closing: true)
            }.orServerError()
        } catch {
            throw RedisError(error, address)
        }
    }

    @discardableResult
    package func call(_ words: String..., extra: Duration = .zero) async throws(RedisError) -> Value {
        try await call(words.map(ByteBuffer.init(string:)), extra: extra)
    }

    /// Sends commands together and waits for the replies of all: one way there and back, and one turn of the server's,
    /// whose system calls cost it more than most commands do. Of error replies the first is thrown.
    @discardableResult
    package func call(together commands: [[String]]) async throws(RedisError) -> [Value] {
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

    /// Says who we are.
    /// - Parameter name: by which CLIENT LIST shows the connection.
    func greet(_ name: String, user: String, password: Secret?) async throws(RedisError) {
        var words = ["HELLO", "3"].map(ByteBuffer.init(string:))
        if let password {
            words += ["AUTH", user.isEmpty ? "default" : user].map(ByteBuffer.init(string:))
            words.append(password.withBytes { ByteBuffer(bytes: $0) })
        }
        try await call(words + ["SETNAME", name].map(ByteBuffer.init(string:)))
    }

    func requireMaster() async throws(RedisError) {
        let role = try await call("ROLE").elements?.first?.text ?? "unknown"
        guard role == "master" else { throw RedisError("\(address) is no master: its role is \(oneLine(role))") }
    }
}
