import CCurl
import CacheCore
import Origins

/// The findings for the circuit breakers: the observed state of a host, regardless of the transfer's outcome.
extension Transfer {
    /// The host of the current hop. Until it is known, the domain whose SRV records name it.
    var host: HostKey {
        if let domain = domainToQuery { return HostKey(origin: origin.name, namedBy: domain) }
        return HostKey(origin: origin.name, authority: url.authority)
    }

    /// The finding from the response of a domain's name server; nil means that it did not respond in time.
    func finding(_ response: ServiceResponse?) -> CircuitBreakers.Finding {
        switch response {
        case .records: .works
        case .failed: .unreachable
        case .busy: .nothing
        case nil:
            Self.finding(
                afterTimeout: hopTimeout, of: handle.job.timeout, hasSentNothing: true,
                connectTimeout: origin.connectTimeout)
        }
    }

    /// The finding from the hop that libcurl ended with `code`. Call it before ``conclude(_:)``. Nil if the hop is
    /// repeated on a new connection.
    func finding(_ code: CURLcode) -> CircuitBreakers.Finding? {
        if code == CURLE_ABORTED_BY_CALLBACK, needsFreshConnection { return nil }
        // A refused address and a missing descriptor are not the host's fault.
        if refusal != nil || lacksSocket, openedSockets.isEmpty { return .nothing }
        // Nor is a resolver that could not be queried.
        if lookup.isRefused || easy.lacksResourcesToResolve(code) { return .nothing }
        if let status = seenStatus, status == 429 || status >= 500 {
            return .failed(retryAfter: status == 429 || status == 503 ? retryAfter : nil)
        }
        switch code {
        case CURLE_OK: return isRefusal(seenStatus ?? 0) ? .refused : .works
        // Aborted here because of the response's content.
        case CURLE_WRITE_ERROR where seenStatus != nil, CURLE_LDAP_SEARCH_FAILED where seenStatus != nil: return .works
        case CURLE_OUT_OF_MEMORY, CURLE_FAILED_INIT: return .nothing
        case CURLE_OPERATION_TIMEDOUT:
            return Self.finding(
                afterTimeout: hopTimeout, of: handle.job.timeout, hasSentNothing: hasSentNothing,
                connectTimeout: origin.connectTimeout)
        // No address, no connection, no TLS, or a refused LDAP bind, which does not depend on the account.
        case CURLE_COULDNT_RESOLVE_PROXY, CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_CONNECT, CURLE_PROXY,
            CURLE_SSL_CONNECT_ERROR, CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CIPHER, CURLE_SSL_CACERT_BADFILE,
            CURLE_SSL_ISSUER_ERROR, CURLE_SSL_INVALIDCERTSTATUS, CURLE_LOGIN_DENIED:
            return .unreachable
        default: return .failed(retryAfter: nil)
        }
    }

    /// libcurl does not count the bytes of LDAP.
    private var hasSentNothing: Bool { url.scheme.isDirectory ? attempts == 0 : easy.hasSentNothing }

    /// The finding from a timeout. A request that spent most of its time in the queue says nothing about the host.
    /// - Parameter hopTimeout: milliseconds that the request had, of `timeout` including the time in the queue.
    static func finding(
        afterTimeout hopTimeout: Int64, of timeout: Int64, hasSentNothing: Bool, connectTimeout: Int64
    ) -> CircuitBreakers.Finding {
        guard hasSentNothing else {
            return hopTimeout < min(connectTimeout, timeout / 2) ? .nothing : .failed(retryAfter: nil)
        }
        let enough = min(connectTimeout, timeout - timeout / 10)
        return hopTimeout < enough ? .nothing : .unreachable
    }

    private var retryAfter: Int64? {
        field("retry-after").flatMap {
            RetryAfter.milliseconds($0, date: field("date"), now: environment.wallClock())
        }
    }
}
