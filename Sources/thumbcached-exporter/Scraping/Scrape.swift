import LinuxSupport
import NIOCore
@_spi(Wire) import Thumbcache

/// What the daemon said of itself, or why it did not.
struct Scrape: Sendable {
    struct Figures: Sendable {
        /// As the daemon wrote it.
        let text: String
        let metrics: ThumbcacheMetrics
    }

    let moment: NIODeadline
    let outcome: Result<Figures, Silence>

    /// Why there are no figures: a sentence for people.
    struct Silence: Error, Equatable {
        let reason: String
    }

    /// The text that Prometheus is given.
    var exposition: ByteBuffer {
        guard case .success(let figures) = outcome else { return Self.down }
        var text = ByteBuffer(string: figures.text)
        if figures.text.utf8.last != UInt8(ascii: "\n") { text.writeString("\n") }
        text.writeString(Self.up(true))
        return text
    }

    /// The same where the daemon says nothing.
    static var down: ByteBuffer { ByteBuffer(string: up(false)) }

    private static func up(_ isUp: Bool) -> String {
        """
        # HELP thumbcached_up Whether the daemon answered the exporter: 1 or 0.
        # TYPE thumbcached_up gauge
        thumbcached_up \(isUp ? 1 : 0)

        """
    }
}

extension Scrape.Silence {
    init(_ error: ThumbcacheError, socket: String) {
        let daemon = "The daemon at \(socket)"
        reason =
            switch error {
            case .server(.denied, _):
                "\(daemon) does not tell this user: name it in access.observers of the daemon's configuration."
            case .server(let code, _): "\(daemon) answered \(code)."
            case .unreachable(_, let code): "\(daemon) cannot be reached: \(SystemError(call: "connect", code: code))."
            case .notThumbcached: "What listens at \(socket) is not thumbcached."
            case .protocolViolation(let what): "What listens at \(socket) does not speak as it should: \(what)."
            case .timeout: "\(daemon) does not answer in time."
            case .connectionLost, .cancelled, .notRunning: "\(daemon) closed the connection."
            case .invalidRequest(let what): "Nothing could be asked: \(what)."
            }
    }
}
