import CCurl
import ThumbnailCache

// What a request shows of its host, whatever it means for the transfer.

extension Transfer {
    /// The host of the current hop.
    var host: HostKey { HostKey(origin: origin.name, authority: url.authority) }

    /// What the hop that libcurl ended with `code` shows; to be asked before ``conclude(_:)``, which may go on to the
    /// next. Nil while the hop goes on.
    func finding(_ code: CURLcode) -> CircuitBreakers.Finding? {
        if code == CURLE_ABORTED_BY_CALLBACK, needsFreshConnection { return nil }
        // An address that must not be reached, and a descriptor that is not to be had, are no fault of the host's.
        if refusal != nil || lacksSocket, openedSockets.isEmpty { return .nothing }
        // Nor is a resolver that could not be asked.
        if lookup.isRefused || easy.isUnresolvedForWantOfRoom(code) { return .nothing }
        if let status = seenStatus, status == 429 || status >= 500 {
            return .failed(retryAfter: status == 429 || status == 503 ? retryAfter : nil)
        }
        switch code {
        case CURLE_OK: return isRefusal(seenStatus ?? 0) ? .refused : .works
        // Ended from here, for what the answer is and not for how it came.
        case CURLE_WRITE_ERROR where seenStatus != nil: return .works
        case CURLE_OUT_OF_MEMORY, CURLE_FAILED_INIT: return .nothing
        case CURLE_OPERATION_TIMEDOUT:
            return Self.finding(afterTimeout: given, hasSentNothing: easy.hasSentNothing, of: origin)
        default: return easy.isUnreachable(code) ? .unreachable : .failed(retryAfter: nil)
        }
    }

    /// Who has waited in the queue for nearly all of its time cannot blame the host for the rest; least of all for
    /// everybody.
    /// - Parameter given: milliseconds that the request had.
    static func finding(afterTimeout given: Int64, hasSentNothing: Bool, of origin: Origin) -> CircuitBreakers.Finding {
        guard hasSentNothing else {
            return given < min(origin.connectTimeout, origin.timeout / 2) ? .nothing : .failed(retryAfter: nil)
        }
        // Where there is less time in all than there is to connect, nearly all of it.
        let enough = min(origin.connectTimeout, origin.timeout - origin.timeout / 10)
        return given < enough ? .nothing : .unreachable
    }

    private var retryAfter: Int64? {
        field("retry-after").flatMap {
            RetryAfter.milliseconds($0, date: field("date"), now: configuration.wallClock())
        }
    }
}
