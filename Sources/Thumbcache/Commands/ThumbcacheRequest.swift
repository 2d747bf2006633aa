import NIOCore
import ThumbcacheProtocol

/// A command with its arguments, ready to be sent. The methods of ``ThumbcacheCommands`` make them.
public struct ThumbcacheRequest: Sendable {
    /// The words as they are sent, each as a bulk string.
    private(set) var body = ByteBuffer()
    private(set) var count = 0
    /// Whether the reply may have to wait for a download. Such a request gets a connection for itself.
    package var mayWait = false
    /// What its reply makes untrue of images that somebody keeps.
    package var change: ImageChange?
    /// Instead of the configuration's.
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

    /// An option with its value; nothing where there is none.
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

/// The answer to a ``ThumbcacheRequest``.
public struct ThumbcacheReply: Sendable {
    package let value: Value
}

/// Which images are not what they were.
package enum ImageChange: Sendable, Hashable {
    /// All of every user.
    case ofEverybody
    /// All of a user.
    case of(ThumbcacheID)
    /// Those of a profile are gone.
    case gone(ThumbcacheID, profile: ThumbcacheID)
    /// Those of a profile may be others.
    case updated(ThumbcacheID, profile: ThumbcacheID)
}

func words(_ words: String...) -> [ByteBuffer] { words.map(ByteBuffer.init(string:)) }

extension Value {
    /// The value, or the server's error as one that is thrown.
    @_spi(Wire) public func orServerError() throws(ThumbcacheError) -> Value {
        guard case .error(let code, let message) = self else { return self }
        throw .server(ServerErrorCode(rawValue: code), message: message)
    }
}
