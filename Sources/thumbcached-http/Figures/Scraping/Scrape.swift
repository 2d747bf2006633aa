import LinuxSupport
import NIOCore
@_spi(Wire) import Thumbcache

struct Scrape: Sendable {
    struct Figures: Sendable {
        let text: String
        let metrics: ThumbcacheMetrics
    }

    let moment: NIODeadline
    let outcome: Result<Figures, Failure>

    /// Why there are no metrics, as a sentence for the page and the log.
    struct Failure: Error, Equatable {
        let reason: String
    }

    var exposition: ByteBuffer {
        guard case .success(let figures) = outcome else { return Self.down }
        var text = ByteBuffer(string: figures.text)
        if figures.text.utf8.last != UInt8(ascii: "\n") { text.writeString("\n") }
        text.writeString(Self.up(true))
        return text
    }

    /// The response to a scrape without metrics.
    static var down: ByteBuffer { ByteBuffer(string: up(false)) }

    private static func up(_ isUp: Bool) -> String {
        """
        # HELP thumbcached_up 1 if the daemon replied to this scrape, else 0.
        # TYPE thumbcached_up gauge
        thumbcached_up \(isUp ? 1 : 0)

        """
    }
}

extension Scrape.Failure {
    init(_ error: ThumbcacheError, socket: String) {
        let daemon = "The daemon at \(socket)"
        reason =
            switch error {
            case .server(.denied, _):
                "\(daemon) denies METRICS to this user: add it to access.observers in the daemon's configuration."
            case .server(let code, _): "\(daemon) replied with the error \(code)."
            case .unreachable(_, let code): "\(daemon) cannot be reached: \(SystemError(call: "connect", code: code))."
            case .notThumbcached: "The server at \(socket) is not thumbcached."
            case .protocolViolation(let what): "Invalid reply of the server at \(socket): \(what)."
            case .timeout: "\(daemon) did not reply in time."
            case .connectionLost, .cancelled, .notRunning: "\(daemon) closed the connection."
            case .invalidRequest(let what): "Invalid request: \(what)."
            }
    }
}
