import NIOCore
import ThumbcacheProtocol

/// An encoded command. The methods of ``ThumbcacheCommands`` create requests.
public struct ThumbcacheRequest: Sendable {
    /// The words, each encoded as a bulk string. A typical request fits without growth.
    private(set) var body = ByteBufferAllocator().buffer(capacity: 128)
    private(set) var count = 0
    /// Whether the reply may wait for a download or a rendition. Such a request gets a connection of its own.
    package var mayWait = false
    /// The cached images that this request invalidates.
    package var change: ImageChange?
    package var timeout: Duration??

    @_spi(Wire) public init(_ words: [ByteBuffer]) { for word in words { append(word) } }

    init(_ name: String, _ arguments: ThumbcacheID...) {
        append(name)
        for argument in arguments { append(argument) }
    }

    mutating func append(_ word: String) {
        body.writeBulkString(word)
        count += 1
    }

    mutating func append(_ word: ByteBuffer) {
        body.writeBulkString(word)
        count += 1
    }

    mutating func append(_ id: ThumbcacheID) {
        body.writeBulkString(id.bytes)
        count += 1
    }

    mutating func append(_ option: String, _ value: ThumbcacheID?) {
        guard let value else { return }
        append(option)
        append(value)
    }

    mutating func append(_ option: String, _ value: (some CustomStringConvertible)?) {
        guard let value else { return }
        append(option)
        append(value.description)
    }
}

/// The reply to a ``ThumbcacheRequest``.
public struct ThumbcacheReply: Sendable {
    package let value: Value
}

/// The images that a request or an event invalidates.
package enum ImageChange: Sendable, Hashable {
    /// All images of all users.
    case all
    /// All images of a user.
    case of(ThumbcacheID)
    /// The images of a profile were removed.
    case gone(ThumbcacheID, profile: ThumbcacheID)
    /// The images of a profile may have changed.
    case updated(ThumbcacheID, profile: ThumbcacheID)
}

func words(_ words: String...) -> [ByteBuffer] { words.map(ByteBuffer.init(string:)) }

extension Value {
    /// The error that an error reply stands for; nil for any other reply.
    var serverError: ThumbcacheError? {
        guard case .error(let code, let message) = self else { return nil }
        return .server(ServerErrorCode(rawValue: code), message: message)
    }

    /// Returns the value itself, or throws its ``serverError``.
    @_spi(Wire) public func orServerError() throws(ThumbcacheError) -> Value {
        if let serverError { throw serverError }
        return self
    }
}
