import CCurl
import CacheCore
import Glibc
import HelperProtocol
import NIOCore
import Origins

/// What all transfers of one thread use.
struct TransferContext {
    let connections: ConnectionTable
    let lookups: NameLookups
    let rulesCache: OriginRulesCache
    var configuration: FetcherConfiguration
}

/// One transfer under way: a request, and another wherever the first is not the last. What is asked, and what the
/// answer comes to, is for ``DownloadTransfer`` and ``TokenTransfer`` to say.
///
/// Redirects are followed by these and not by libcurl (CURLOPT_FOLLOWLOCATION): so every hop is a request of its own,
/// set up by the same lines, with all rules asked anew, and nothing is carried over by default.
///
/// Only the fetcher's thread touches it; libcurl calls it back on that thread.
class Transfer {
    /// How often one hop's request goes out: once more where a used connection ended before a line of an answer.
    static let mostSent = 2
    /// Whether this libcurl knows a file of the system's authorities, and not only a directory of them.
    private static let hasBundle = ccurl_bundle() != nil

    let handle: TransferHandle
    let context: TransferContext
    /// When it is given up.
    let deadline: NIODeadline
    /// Of the current hop: each has its own.
    private(set) var easy: EasyHandle
    /// Of the current hop.
    var url: WebURL
    /// Of all hops that have ended.
    var counts = FetcherStatistics.Counts()
    /// What the current hop is sent with; nil until its host may be asked, and after what came of it has been told.
    var permit: CircuitBreakers.Permit?
    /// Of this hop: why an address was refused, and the sockets opened to others.
    var refusal: String?
    var openedSockets: [curl_socket_t] = []
    /// Whether the connection that libcurl would have used again was not fit for it, and this hop is to have its own.
    var needsFreshConnection = false
    /// Of this hop: the requests that went out. See ``mostSent``.
    var sent = 0
    /// Of the current hop.
    private(set) var lookup: NameLookup
    /// While a domain is being asked for it.
    var wait: ServiceLookups.Wait?
    /// Whether a socket was not to be had for this hop.
    var lacksSocket = false
    /// Milliseconds that this hop was given.
    private(set) var given: Int64 = 0
    /// Whether this hop may go to a private address.
    private(set) var mayBePrivate = false

    /// With the current hop.
    var allCounts: FetcherStatistics.Counts {
        var counts = counts
        counts[.requests] += sent
        return counts
    }

    var origin: Origin { handle.job.origin }
    var configuration: FetcherConfiguration { context.configuration }

    init(
        _ handle: TransferHandle, to url: WebURL, deadline: NIODeadline, _ context: TransferContext
    ) throws(TransferFailure) {
        (self.handle, self.url, self.deadline, self.context) = (handle, url, deadline, context)
        lookup = Self.lookup(of: handle, context)
        easy = try EasyHandle()
    }

    private static func lookup(of handle: TransferHandle, _ context: TransferContext) -> NameLookup {
        NameLookup(of: handle.job.asker, among: context.lookups)
    }

    /// Whose handle that is; nil for one of libcurl's own.
    static func of(_ easy: UnsafeMutableRawPointer?) -> Transfer? {
        var context: UnsafeMutableRawPointer?
        guard let easy, ccurl_easy_get_pointer(easy, CURLINFO_PRIVATE, &context) == CURLE_OK else { return nil }
        return of(context: context)
    }

    /// Whether libcurl may forget it, as it does at times what comes over HTTP/2. A token request speaks HTTP/1.1.
    var needsNudges: Bool { url.scheme == .https && handle.job.kind == .download }

    /// What libcurl calls back is given the transfer, which the loop keeps for as long as libcurl has the handle.
    static func of(context: UnsafeMutableRawPointer?) -> Transfer? {
        context.map { Unmanaged<Transfer>.fromOpaque($0).takeUnretainedValue() }
    }

    // MARK: What is special to a kind of transfer

    /// Whom it asks, in sentences.
    var asked: String { url.host }
    /// Whether the current URL is one that the operator lets be at a private address.
    var isAllowedPrivately: Bool { origin.allowPrivateAddresses }
    /// Whether a stranger has chosen the host of the current URL.
    var isStrangers: Bool { false }
    /// The status of the answer, as soon as it is known.
    var seenStatus: Int? { easy.status == 0 ? nil : easy.status }
    /// The value of a field of the answer, by its name in lower case.
    func field(_ name: String) -> String? { easy.field(name) }
    /// Whether a status says that the uid is not to ask again, though the host works.
    func isRefusal(_ status: Int) -> Bool { false }
    /// The domain to be asked who is asked; nil where that is known.
    var domainToAsk: String? { nil }
    /// Takes what that domain has said; a failure where nobody is to be asked.
    func take(_ answer: ServiceAnswer) -> TransferFailure? { nil }
    /// Goes on to another host where the current one cannot be reached. False where there is none.
    func goOn() -> Bool { false }
    /// Sets what ``Transfer`` does not.
    func setOptions(of easy: EasyHandle) throws(TransferFailure) {}
    func receive(header line: UnsafeRawBufferPointer) -> Bool { true }
    func receive(body bytes: UnsafeRawBufferPointer) -> Bool { true }
    func receive(asItCame count: Int) {}
    /// What the hop that libcurl ended with `code` comes to; nil when another is to follow.
    func outcome(_ code: CURLcode) -> TransferOutcome? { .failed(failure(code)) }

    // MARK: One hop

    /// When the answer of ``domainToAsk`` is waited for no more: it is part of connecting.
    func beginLookup(at now: NIODeadline) -> NIODeadline {
        let end = min(deadline, now + .milliseconds(origin.connectTimeout))
        given = max(0, (end - now).nanoseconds / 1_000_000)
        return end
    }

    /// Sets up the request for the current hop.
    func prepare(at now: NIODeadline) throws(TransferFailure) {
        let left = deadline - now
        guard left > .zero else { throw .timedOut("\(asked) did not answer within \(handle.entry.timeout) ms") }
        refusal = nil
        openedSockets = []
        lacksSocket = false
        given = left.nanoseconds / 1_000_000
        mayBePrivate = isAllowedPrivately
        // A proxy is asked by name, so that no socket is ever opened to what the URL names; what it names as a number
        // can still be judged.
        if !origin.proxy.isEmpty, let address = url.address, let reason = refusalReason(address) {
            throw .denied(deniedSentence(address, reason))
        }
        try setCommonOptions(milliseconds: max(1, Int(clamping: given)))
        try setOptions(of: easy)
    }

    /// What the hop that libcurl ended with `code` comes to; nil when another is to be prepared.
    func conclude(_ code: CURLcode) -> TransferOutcome? {
        if code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY { lookup.end() }
        if code == CURLE_ABORTED_BY_CALLBACK, needsFreshConnection { return nextRequest() }
        needsFreshConnection = false
        counts[.requests] += max(1, sent)
        sent = 0
        return outcome(code) ?? nextRequest()
    }

    /// Makes the handle that another request takes; a failure where there is none to be had.
    private func nextRequest() -> TransferOutcome? {
        do {
            easy = try EasyHandle()
            lookup = Self.lookup(of: handle, context)
            return nil
        } catch {
            return .failed(error)
        }
    }

    private func setCommonOptions(milliseconds: Int) throws(TransferFailure) {
        let context = Unmanaged.passUnretained(self).toOpaque()
        try easy.set(CURLOPT_PRIVATE, pointer: context)
        try easy.set(CURLOPT_URL, url.string)
        // The path is normal already; libcurl is not to make another of it.
        try easy.set(CURLOPT_PATH_AS_IS, 1)
        try easy.set(CURLOPT_PROTOCOLS_STR, "http,https")
        try easy.set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https")
        try easy.set(CURLOPT_FOLLOWLOCATION, 0)
        try easy.set(CURLOPT_HTTP09_ALLOWED, 0)
        try easy.set(CURLOPT_USERAGENT, origin.userAgent.isEmpty ? configuration.userAgent : origin.userAgent)

        // No signals; and no waiting for a resolver's thread, which would hold up everybody.
        try easy.set(CURLOPT_NOSIGNAL, 1)
        try easy.set(CURLOPT_QUICK_EXIT, 1)
        try easy.set(CURLOPT_TIMEOUT_MS, milliseconds)
        try easy.set(CURLOPT_CONNECTTIMEOUT_MS, min(milliseconds, max(1, Int(clamping: origin.connectTimeout))))

        // The environment is never asked: not for a proxy (the empty string is "none"), nor for a password.
        try easy.set(CURLOPT_PROXY, origin.proxy)
        try easy.set(CURLOPT_NOPROXY, "")
        try easy.set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1)
        try easy.set(CURLOPT_NETRC, 0)

        try easy.set(CURLOPT_SSL_VERIFYPEER, 1)
        try easy.set(CURLOPT_SSL_VERIFYHOST, 2)
        try easy.set(CURLOPT_SSLVERSION, CURL_SSLVERSION_TLSv1_2)
        if !origin.caFile.isEmpty { try easy.set(CURLOPT_CAINFO, origin.caFile) }
        // The system's directory would be trusted beside the file; and with it libcurl reads all authorities anew for
        // each connection, for 20 ms, where it keeps those of a file.
        if !origin.caFile.isEmpty || Self.hasBundle { try easy.set(CURLOPT_CAPATH, pointer: nil) }

        if url.address == nil || !origin.proxy.isEmpty { try lookup.attach(to: easy) }
        try easy.check(
            CURLOPT_OPENSOCKETFUNCTION,
            ccurl_easy_set_open_socket_function(easy.raw) { context, _, address in
                guard let transfer = Transfer.of(context: context), let address else { return CURL_SOCKET_BAD }
                return transfer.socket(for: address)
            })
        try easy.set(CURLOPT_OPENSOCKETDATA, pointer: context)
        // Its context is the table, which outlives the multi handle.
        try easy.check(
            CURLOPT_CLOSESOCKETFUNCTION,
            ccurl_easy_set_close_socket_function(easy.raw) { context, socket in
                guard let context else { return Glibc.close(socket) }
                return Unmanaged<ConnectionTable>.fromOpaque(context).takeUnretainedValue().close(socket)
            })
        try easy.set(CURLOPT_CLOSESOCKETDATA, pointer: Unmanaged.passUnretained(self.context.connections).toOpaque())
        try easy.set(CURLOPT_FRESH_CONNECT, needsFreshConnection ? 1 : 0)
        try easy.check(
            CURLOPT_PREREQFUNCTION,
            ccurl_easy_set_prereq_function(easy.raw) { context, remote, local, remotePort, localPort in
                guard let transfer = Transfer.of(context: context), let remote, let local else {
                    return CURL_PREREQFUNC_ABORT
                }
                let ends = ConnectionTable.Ends(
                    localAddress: String(cString: local), localPort: localPort,
                    remoteAddress: String(cString: remote), remotePort: remotePort)
                return transfer.maySend(on: ends) ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT
            })
        try easy.set(CURLOPT_PREREQDATA, pointer: context)
        // A function for data returns how much it took: anything else makes libcurl give up.
        try easy.set(CURLOPT_HEADERFUNCTION) { bytes, size, count, context in
            let line = UnsafeRawBufferPointer(start: bytes, count: size * count)
            return Transfer.of(context: context)?.receive(header: line) == true ? line.count : -1
        }
        try easy.set(CURLOPT_HEADERDATA, pointer: context)
        try easy.set(CURLOPT_WRITEFUNCTION) { bytes, size, count, context in
            let piece = UnsafeRawBufferPointer(start: bytes, count: size * count)
            return Transfer.of(context: context)?.receive(body: piece) == true ? piece.count : -1
        }
        try easy.set(CURLOPT_WRITEDATA, pointer: context)
        try easy.setResolverOverrides(configuration.resolverOverrides())
    }

    /// Why a hop has failed that libcurl ended with `code`.
    func failure(_ code: CURLcode) -> TransferFailure {
        if let refusal, openedSockets.isEmpty { return .denied(refusal) }
        if lookup.isRefused { return .busy(NameLookup.refusal) }
        switch code {
        case CURLE_OPERATION_TIMEDOUT:
            return .timedOut("\(asked) did not answer in time: \(easy.failureText(code))")
        case CURLE_ABORTED_BY_CALLBACK where sent >= Self.mostSent:
            return .origin("\(asked) ended the connection without an answer, \(sent) times")
        case CURLE_PARTIAL_FILE:
            return .origin("\(asked) ended its answer before it was whole")
        default:
            return .origin("\(asked): \(easy.failureText(code))")
        }
    }
}
