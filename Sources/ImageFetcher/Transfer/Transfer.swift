import CCurl
import CacheCore
import Glibc
import HelperProtocol
import NIOCore
import Origins

/// The objects that all transfers of the fetcher's thread share.
struct TransferContext {
    let connections: ConnectionTable
    let lookups: NameLookups
    let rulesCache: OriginRulesCache
    let environment: FetcherEnvironment
    var settings: FetcherSettings
}

/// A transfer in progress: one request, or several if the response is a redirect. Its subclasses ``DownloadTransfer``,
/// ``DirectoryTransfer`` and ``TokenTransfer`` define the request and the meaning of the response.
///
/// Redirects are followed here and not by libcurl (CURLOPT_FOLLOWLOCATION): each hop is a request of its own, set up by
/// the same code, with all rules applied again. Used on the fetcher's thread only, on which libcurl also calls it back.
class Transfer {
    /// Maximum number of times a hop's request is sent: a second time if a reused connection was closed without a
    /// response.
    static let maximumAttempts = 2
    /// Whether libcurl has a file with the system's certificate authorities, and not only a directory.
    private static let hasBundle = ccurl_bundle() != nil

    let handle: TransferHandle
    let context: TransferContext
    let deadline: NIODeadline
    /// The counts of all hops that have ended.
    var counts = FetcherStatistics.Counts()

    // The following belong to the current hop.

    private(set) var easy: EasyHandle
    var url: WebURL
    /// The permit of the circuit breakers; nil before it is acquired and after the finding was recorded.
    var permit: CircuitBreakers.Permit?
    /// Why an address was refused.
    var refusal: String?
    /// The sockets that were opened to permitted addresses.
    var openedSockets: [curl_socket_t] = []
    /// Whether the connection that libcurl chose could not be reused, so that the request needs a new one.
    var needsFreshConnection = false
    /// How often the request of this hop was sent.
    var attempts = 0
    private(set) var lookup: NameLookup
    var serviceLookup: ServiceLookups.Wait?
    /// Whether opening or watching a socket failed for lack of descriptors or memory.
    var lacksSocket = false
    /// Milliseconds until the hop times out, when it began.
    private(set) var hopTimeout: Int64 = 0
    /// Whether the hop may connect to a private address.
    private(set) var mayBePrivate = false

    var allCounts: FetcherStatistics.Counts {
        var counts = counts
        counts[.requests] += attempts
        return counts
    }

    var origin: Origin { handle.job.origin }
    var settings: FetcherSettings { context.settings }
    var environment: FetcherEnvironment { context.environment }

    init(
        _ handle: TransferHandle, to url: WebURL, deadline: NIODeadline, _ context: TransferContext
    ) throws(FetchFailure) {
        (self.handle, self.url, self.deadline, self.context) = (handle, url, deadline, context)
        lookup = Self.lookup(of: handle, context)
        easy = try EasyHandle()
    }

    private static func lookup(of handle: TransferHandle, _ context: TransferContext) -> NameLookup {
        NameLookup(of: handle.job.lookupClient, among: context.lookups)
    }

    /// The transfer of an easy handle; nil for a handle of libcurl's own.
    static func of(_ easy: UnsafeMutableRawPointer?) -> Transfer? {
        var context: UnsafeMutableRawPointer?
        guard let easy, ccurl_easy_get_pointer(easy, CURLINFO_PRIVATE, &context) == CURLE_OK else { return nil }
        return of(context: context)
    }

    /// Whether the transfer may stall in libcurl because it uses HTTP/2 or LDAP. Token requests use HTTP/1.1.
    var needsPolling: Bool { url.scheme != .http && handle.job.kind == .download }

    /// The transfer that is the context of libcurl's callbacks. The loop retains it while libcurl has the handle.
    static func of(context: UnsafeMutableRawPointer?) -> Transfer? {
        context.map { Unmanaged<Transfer>.fromOpaque($0).takeUnretainedValue() }
    }

    // MARK: Overridden by subclasses

    var hostName: String { url.host }
    /// Whether the operator allows the current URL to be at a private address.
    var isAllowedPrivately: Bool { origin.allowPrivateAddresses }
    /// Whether a domain's SRV records, and not the operator, chose the host of the current URL.
    var isFederated: Bool { false }
    var seenStatus: Int? { easy.status == 0 ? nil : easy.status }
    func field(_ name: String) -> String? { easy.field(name) }
    /// Whether the status means that the host works, but the account must not repeat the request soon.
    func isRefusal(_ status: Int) -> Bool { false }
    /// The domain whose SRV records must be queried before the request; nil if the host is known.
    var domainToQuery: String? { nil }
    /// Accepts the response of that domain. Throws if there is no host to request the image from.
    func accept(_ response: ServiceResponse) throws(FetchFailure) {}
    /// Switches to another host after the current one could not be reached. Returns false if there is none.
    func tryNextHost() -> Bool { false }
    func setOptions(of easy: EasyHandle) throws(FetchFailure) {}
    func receive(header line: UnsafeRawBufferPointer) -> Bool { true }
    func receive(body bytes: UnsafeRawBufferPointer) -> Bool { true }
    func receive(rawBody count: Int) {}
    /// The outcome of the hop that libcurl ended with `code`; nil if another hop follows.
    func outcome(_ code: CURLcode) -> TransferOutcome? { handle.job.failed(failure(code)) }

    // MARK: One hop

    /// The deadline of the SRV lookup for ``domainToQuery``. The lookup counts as part of connecting.
    func beginLookup(at now: NIODeadline) -> NIODeadline {
        let end = min(deadline, now + .milliseconds(origin.connectTimeout))
        hopTimeout = max(0, (end - now).nanoseconds / 1_000_000)
        return end
    }

    func prepare(at now: NIODeadline) throws(FetchFailure) {
        let left = deadline - now
        guard left > .zero else { throw .timedOut("\(hostName) did not respond within \(handle.entry.timeout) ms") }
        refusal = nil
        openedSockets = []
        lacksSocket = false
        hopTimeout = left.nanoseconds / 1_000_000
        mayBePrivate = isAllowedPrivately
        // A proxy resolves names itself, so no socket is opened to the host. A literal address can still be checked.
        if !origin.proxy.isEmpty, let address = url.address, let reason = refusalReason(address) {
            throw .denied(deniedSentence(address, reason))
        }
        try setCommonOptions(milliseconds: max(1, Int(clamping: hopTimeout)))
        try setOptions(of: easy)
    }

    /// Returns the outcome of the transfer that libcurl ended with `code`; nil if another hop follows. The meaning of
    /// the response is ``outcome(_:)`` of the subclass; `TransferLoop.endFinished()` then sends or ends the transfer.
    func conclude(_ code: CURLcode) -> TransferOutcome? {
        if code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY { lookup.end() }
        if code == CURLE_ABORTED_BY_CALLBACK, needsFreshConnection { return nextRequest() }
        needsFreshConnection = false
        counts[.requests] += max(1, attempts)
        attempts = 0
        return outcome(code) ?? nextRequest()
    }

    /// Creates the handle for the next request. Returns an outcome only if that fails.
    private func nextRequest() -> TransferOutcome? {
        do {
            easy = try EasyHandle()
            lookup = Self.lookup(of: handle, context)
            return nil
        } catch {
            return handle.job.failed(error)
        }
    }

    private func setCommonOptions(milliseconds: Int) throws(FetchFailure) {
        let context = Unmanaged.passUnretained(self).toOpaque()
        try easy.set(CURLOPT_PRIVATE, pointer: context)
        try easy.set(CURLOPT_URL, url.string)
        // The path is normalized already; libcurl must not change it.
        try easy.set(CURLOPT_PATH_AS_IS, 1)
        try easy.set(CURLOPT_PROTOCOLS_STR, url.scheme.isDirectory ? url.scheme.rawValue : "http,https")
        try easy.set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https")
        try easy.set(CURLOPT_FOLLOWLOCATION, 0)
        try easy.set(CURLOPT_HTTP09_ALLOWED, 0)
        try easy.set(CURLOPT_USERAGENT, origin.userAgent.isEmpty ? settings.userAgent : origin.userAgent)

        // No signals, and no waiting for a resolver thread, which would block all transfers.
        try easy.set(CURLOPT_NOSIGNAL, 1)
        try easy.set(CURLOPT_QUICK_EXIT, 1)
        try easy.set(CURLOPT_TIMEOUT_MS, milliseconds)
        try easy.set(CURLOPT_CONNECTTIMEOUT_MS, min(milliseconds, max(1, Int(clamping: origin.connectTimeout))))

        // The environment must not provide a proxy (an empty string means none) or a password.
        try easy.set(CURLOPT_PROXY, origin.proxy)
        try easy.set(CURLOPT_NOPROXY, "")
        try easy.set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1)
        try easy.set(CURLOPT_NETRC, 0)

        try easy.set(CURLOPT_SSL_VERIFYPEER, 1)
        try easy.set(CURLOPT_SSL_VERIFYHOST, 2)
        try easy.set(CURLOPT_SSLVERSION, CURL_SSLVERSION_TLSv1_2)
        if !origin.caFile.isEmpty { try easy.set(CURLOPT_CAINFO, origin.caFile) }
        // Otherwise libcurl would also trust the system's directory, which it reads for each connection (20 ms).
        if !origin.caFile.isEmpty || Self.hasBundle { try easy.set(CURLOPT_CAPATH, pointer: nil) }

        if url.address == nil || !origin.proxy.isEmpty { try lookup.attach(to: easy) }
        try easy.check(
            CURLOPT_OPENSOCKETFUNCTION,
            ccurl_easy_set_open_socket_function(easy.raw) { context, _, address in
                guard let transfer = Transfer.of(context: context), let address else { return CURL_SOCKET_BAD }
                return transfer.socket(for: address)
            })
        try easy.set(CURLOPT_OPENSOCKETDATA, pointer: context)
        // The context is the table, which outlives the multi handle.
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
        // A data callback returns the number of bytes it accepted; any other number aborts the request.
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
        try easy.setResolverOverrides(environment.resolverOverrides())
    }

    /// The outcome of a download whose response is an image by its headers.
    func image(
        _ bytes: ImageBytes, _ headers: ResponseHeaders, redirectedTo other: String? = nil
    ) -> DownloadOutcome {
        do {
            let shape = try ImageSniffer.sniff(bytes.image, maximumDimension: settings.maximumDimension)
            return .image(DownloadedImage(bytes: bytes, shape: shape, headers: headers, redirectedTo: other))
        } catch {
            return .unusable(.badImage("from \(url.host): \(error.reason)"), headers)
        }
    }

    /// The failure of the hop that libcurl ended with `code`.
    func failure(_ code: CURLcode) -> FetchFailure {
        if let refusal, openedSockets.isEmpty { return .denied(refusal) }
        if lookup.isRefused { return .busy(NameLookup.refusal) }
        switch code {
        case CURLE_OPERATION_TIMEDOUT:
            return .timedOut("\(hostName) did not respond in time: \(easy.failureText(code))")
        case CURLE_ABORTED_BY_CALLBACK where attempts >= Self.maximumAttempts:
            return .origin("\(hostName) closed the connection without a response, \(attempts) times")
        case CURLE_PARTIAL_FILE:
            return .origin("\(hostName) closed the connection before the response was complete")
        default:
            return .origin("\(hostName): \(easy.failureText(code))")
        }
    }
}
