import CCurl
import CacheCore
import HelperProtocol
import Logging
import NIOConcurrencyHelpers
import NIOCore
import Origins

// Which hosts may be asked, as the scheduler keeps it: the thread asks before each request and tells what came of it.

extension TransferScheduler {
    /// A permit for one request of the uid to the host, whose end ``learn(_:of:for:from:policy:at:)`` is to be told.
    func ask(
        _ host: HostKey, for uid: UInt32, at now: NIODeadline
    ) throws(CircuitBreaker.Rejection) -> CircuitBreakers.Permit {
        try state.withLockedValue { state in
            Result { () throws(CircuitBreaker.Rejection) in try state.breakers.ask(host, for: uid, at: now) }
        }.get()
    }

    /// The request that finds out for all has a connection, whatever comes of it.
    /// - Returns: the permit that it has from now on.
    func connected(
        _ host: HostKey, for uid: UInt32, with permit: CircuitBreakers.Permit, at now: NIODeadline
    ) -> CircuitBreakers.Permit {
        let (changes, permit) = state.withLockedValue { state in
            var permit = permit
            return (state.breakers.connected(host, for: uid, with: &permit), permit)
        }
        for change in changes { tell(change, nil, of: host, for: uid, at: now) }
        return permit
    }

    /// What a request showed of its host. What waits behind a breaker that opens leaves the queues: it could only fail.
    func learn(
        _ finding: CircuitBreakers.Finding, of host: HostKey, for uid: UInt32, from permit: CircuitBreakers.Permit,
        policy: BreakerPolicy, at now: NIODeadline
    ) {
        let changes = state.withLockedValue { state in
            let changes = state.breakers.learn(
                finding, of: host, for: uid, from: permit, at: now, rules: CircuitBreaker.Rules(policy),
                draw: state.work.configuration.draw)
            return changes.map { change in
                guard case .opened(let scope) = change, let why = state.breakers.rejection(of: host, for: uid, at: now)
                else { return (change, CircuitBreaker.Rejection?.none) }
                state.reject(host, of: scope, why)
                return (change, why)
            }
        }
        for (change, why) in changes { tell(change, why, of: host, for: uid, at: now) }
    }

    /// The origin is named, and not the host: that may be where a redirect led, and say of whom it has pictures.
    private func tell(
        _ change: CircuitBreakers.Change, _ why: CircuitBreaker.Rejection?, of host: HostKey, for uid: UInt32,
        at now: NIODeadline
    ) {
        let seconds = Int64(clamping: now.uptimeNanoseconds / 1_000_000_000)
        let (message, scope): (Logger.Message, UInt32?) =
            switch change {
            case .opened(let scope): ("a circuit breaker opened", scope)
            case .closed(let scope): ("a circuit breaker closed", scope)
            }
        var metadata: Logger.Metadata = ["origin": "\(host.origin)", "for": scope == nil ? "everyone" : "this uid"]
        if let why { metadata["ms"] = "\(why.milliseconds)" }
        uidLog.write(message, uid: uid, metadata, at: seconds)
    }

    func statistics(at now: NIODeadline) -> FetcherStatistics {
        state.withLockedValue { state in
            var statistics = state.statistics
            statistics.inFlight = state.downloads.active
            statistics.queued = state.downloads.waiting
            state.breakers.addFigures(to: &statistics, at: now)
            return statistics
        }
    }
}

extension TransferScheduler.State {
    /// Takes what waits for a host out of the queues: of the uid alone where it is about one.
    fileprivate mutating func reject(_ host: HostKey, of uid: UInt32?, _ why: CircuitBreaker.Rejection) {
        let entries = queues.indices.flatMap { queues[$0].removeAll(for: host, of: uid) }
        for handle in entries.compactMap({ waiting.removeValue(forKey: $0.id) }) {
            count(of: handle.job) { $0.count(.failed(.rejected(host, why))) }
            work.rejected.append((handle, why))
        }
        if !entries.isEmpty { call() }
    }
}

extension CircuitBreaker.Rejection {
    func sentence(about authority: String) -> String {
        switch self {
        case .open(let milliseconds):
            "\(authority) failed and is not asked for \(milliseconds) ms more: try again then"
        case .probed:
            "\(authority) failed, and one request is finding out whether it is back: try again when that has ended"
        }
    }
}

// What a request shows of its host, whatever it means for the transfer.

extension Transfer {
    /// The host of the current hop; before it is known, the domain that names it.
    var host: HostKey {
        if let domain = domainToAsk { return HostKey(origin: origin.name, namedBy: domain) }
        return HostKey(origin: origin.name, authority: url.authority)
    }

    /// What the wait for a domain's answer shows, as that for any name that is to be resolved; nil: it was too long.
    func finding(_ answer: ServiceAnswer?) -> CircuitBreakers.Finding {
        switch answer {
        case .records: .works
        case .failed: .unreachable
        case .busy: .nothing
        case nil:
            Self.finding(
                afterTimeout: given, of: handle.job.timeout, hasSentNothing: true, connectTimeout: origin.connectTimeout
            )
        }
    }

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
            return Self.finding(
                afterTimeout: given, of: handle.job.timeout, hasSentNothing: easy.hasSentNothing,
                connectTimeout: origin.connectTimeout)
        // It met nobody: there was no address, no connection or no TLS to send it over.
        case CURLE_COULDNT_RESOLVE_PROXY, CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_CONNECT, CURLE_PROXY,
            CURLE_SSL_CONNECT_ERROR, CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CIPHER, CURLE_SSL_CACERT_BADFILE,
            CURLE_SSL_ISSUER_ERROR, CURLE_SSL_INVALIDCERTSTATUS:
            return .unreachable
        default: return .failed(retryAfter: nil)
        }
    }

    /// Who has waited in the queue for nearly all of its time cannot blame the host for the rest.
    /// - Parameters:
    ///   - given: milliseconds that the request had.
    ///   - timeout: milliseconds that there were with the wait.
    static func finding(
        afterTimeout given: Int64, of timeout: Int64, hasSentNothing: Bool, connectTimeout: Int64
    ) -> CircuitBreakers.Finding {
        guard hasSentNothing else {
            return given < min(connectTimeout, timeout / 2) ? .nothing : .failed(retryAfter: nil)
        }
        // Where there is less time in all than there is to connect, nearly all of it.
        let enough = min(connectTimeout, timeout - timeout / 10)
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
