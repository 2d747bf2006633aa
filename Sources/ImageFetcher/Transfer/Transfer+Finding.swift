import CCurl
import Origins
import ThumbnailCache

// What a request shows of its host, whatever it means for the transfer.

extension Transfer {
    /// The host of the current hop.
    var host: HostKey { HostKey(origin: origin.name, authority: url.authority) }

    /// What the hop that libcurl ended with `code` shows, asked before ``conclude(_:)``. Nil while the hop goes on.
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
        // It met nobody: there was no address, no connection or no TLS to send it over.
        case CURLE_COULDNT_RESOLVE_PROXY, CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_CONNECT, CURLE_PROXY,
            CURLE_SSL_CONNECT_ERROR, CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CIPHER, CURLE_SSL_CACERT_BADFILE,
            CURLE_SSL_ISSUER_ERROR, CURLE_SSL_INVALIDCERTSTATUS:
            return .unreachable
        default: return .failed(retryAfter: nil)
        }
    }

    /// Who has waited in the queue for nearly all of its time cannot blame the host for the rest.
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

/// The field Retry-After (RFC 9110 section 10.2.3): seconds, or a date.
enum RetryAfter {
    /// Milliseconds to wait; nil for what is neither, and for a moment that is past.
    ///
    /// - Parameters:
    ///   - date: the same answer's Date, which a date is relative to, whatever the clocks here and there (F14).
    ///   - now: seconds since 1970, for an answer without one.
    static func milliseconds(_ value: String, date: String?, now: Int64) -> Int64? {
        func moment(_ text: String) -> Int64? { HTTPDate.seconds(text, now: now) }
        let seconds = DeltaSeconds.parse(value) ?? moment(value).map { $0 - (date.flatMap(moment) ?? now) }
        return seconds.flatMap { $0 > 0 ? $0 * 1_000 : nil }
    }
}
