import CCurl
import Glibc
import NIOCore
import ThumbnailCache

/// One download under way: request after request as redirects lead on, each of them judged like the first.
///
/// Redirects are followed here and not by libcurl (CURLOPT_FOLLOWLOCATION): so every hop is a request of its own, set up by
/// the same lines, with the rules about scheme, `allow` and token asked anew, and nothing is carried over by default.
///
/// Only the fetcher's thread touches it; libcurl calls it back on that thread.
final class Transfer {
    static let mostRedirects = 3
    /// How often one hop's request goes out: once more where a connection that had been used ended before a line of an answer came.
    static let mostSent = 2

    let ticket: DownloadTicket
    /// Of the current hop: each has its own.
    private(set) var easy: EasyHandle
    let configuration: FetcherConfiguration
    private(set) var url: WebURL
    /// Requests made after the first.
    private(set) var redirects = 0
    /// Requests sent or attempted, of all hops, those sent again among them.
    private(set) var requests = 0
    /// What the answers said, of all hops.
    private(set) var answers = FetcherStatistics.Answers()
    /// What the current hop is sent with; nil until its host may be asked, and after what came of it has been told.
    var permit: HostPermit?
    /// What each redirect said that matters to a cache.
    private(set) var redirectHeaders: [ResponseHeaders] = []
    /// Bytes of body received, of all hops.
    private(set) var bytes = 0
    /// Addresses that were not connected to.
    var refusedAddresses = 0
    private(set) var response: ResponseReader
    let connections: ConnectionTable
    let rulesCache: OriginRulesCache
    /// Of this hop: why an address was refused, and the sockets opened to others.
    var refusal: String?
    var openedSockets: [curl_socket_t] = []
    /// Whether this hop was shown the token.
    private var showsToken = false
    /// Whether the connection that libcurl would have used again was not fit for it, and this hop is to have its own.
    var needsFreshConnection = false
    /// Of this hop: the requests that went out. libcurl sends one again whose connection, used before, ended without an answer.
    var sent = 0
    /// Of the current hop.
    private(set) var lookup: NameLookup
    private let lookups: NameLookups
    /// Whether a socket was not to be had for this hop.
    var lacksSocket = false
    /// Milliseconds that this hop was given.
    private(set) var given: Int64 = 0
    /// Whether this hop may go to a private address.
    var mayBePrivate = false

    var origin: Origin { ticket.download.origin }

    init(
        ticket: DownloadTicket, connections: ConnectionTable, lookups: NameLookups, rulesCache: OriginRulesCache,
        configuration: FetcherConfiguration
    ) throws(DownloadFailure) {
        url = try Self.url(of: ticket.download, rulesCache)
        do {
            easy = try EasyHandle()
        } catch {
            throw .origin("libcurl: \(error.reason)")
        }
        self.ticket = ticket
        self.connections = connections
        self.lookups = lookups
        lookup = NameLookup(of: .init(ticket.entry.uid, ticket.download.origin), among: lookups)
        self.rulesCache = rulesCache
        self.configuration = configuration
        response = Self.reader(url, isConditional: false, ticket.download.framing, configuration)
    }

    private static func url(of download: Download, _ rulesCache: OriginRulesCache) throws(DownloadFailure) -> WebURL {
        do {
            if let url = try rulesCache.rules(of: download.origin).template.takenApart(download.target.url) {
                return url
            }
        } catch {
            // Of an origin whose configuration cannot be read nothing is known: its URL is judged as any other's.
        }
        do {
            return try WebURL(download.target.url)
        } catch {
            throw .origin("the URL to fetch is none: \(error.sentence)")
        }
    }

    // MARK: The way of a download

    /// Sets up the request for the current hop.
    func prepare(at now: NIODeadline) throws(DownloadFailure) {
        let left = ticket.entry.deadline - now
        guard left > .zero else { throw timedOut }
        refusal = nil
        openedSockets = []
        lacksSocket = false
        given = left.nanoseconds / 1_000_000
        mayBePrivate = origin.allowPrivateAddresses && isConfigured
        response = Self.reader(
            url, isConditional: conditionForThisHop != nil, ticket.download.framing, configuration)
        // A proxy is asked by name, so that no socket is ever opened to what the URL names; what it names as a number can still be judged.
        if !origin.proxy.isEmpty, let address = url.address, let reason = refusalReason(address) {
            throw .denied(deniedSentence(address, reason))
        }
        let token = try tokenForThisHop()
        showsToken = token != nil
        do {
            try setOptions(milliseconds: max(1, Int(given)), token: token)
        } catch {
            throw .origin("cannot ask \(url.host): \(error.reason)")
        }
    }

    /// What the hop that libcurl ended with `code` comes to; nil when another request is to follow, for which
    /// ``prepare(at:)`` is to be called.
    func conclude(_ code: CURLcode) -> DownloadOutcome? {
        bytes += response.bodyBytes
        if code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY { lookup.end() }
        if code == CURLE_ABORTED_BY_CALLBACK, needsFreshConnection { return nextRequest() }
        needsFreshConnection = false
        requests += max(1, sent)
        sent = 0
        if let status = response.finalStatus { answers.count(status) }
        guard let verdict = response.verdict(isWhole: code == CURLE_OK) else { return .failed(failure(code)) }
        switch verdict {
        case .image(let framed, let headers):
            return image(framed, completed(headers))
        case .missing(let headers):
            return .missing(completed(headers))
        case .notModified(let headers):
            return .notModified(completed(headers))
        case .redirect(let location):
            do {
                redirectHeaders.append(ResponseHeaders(response.headers.fields, delay: easy.secondsTaken))
                try follow(location)
                return nextRequest()
            } catch {
                return .failed(error)
            }
        case .failed(.unauthorized) where ticket.download.token != nil && !showsToken:
            // Another token would not be shown here either.
            return .failed(.origin("HTTP status 401 from \(url.host), which the user's token is not for"))
        case .failed(let failure):
            return .failed(failure)
        }
    }

    /// Makes the handle that another request takes; a failure where there is none to be had.
    private func nextRequest() -> DownloadOutcome? {
        do {
            easy = try EasyHandle()
            lookup = NameLookup(of: .init(ticket.entry.uid, origin), among: lookups)
            return nil
        } catch {
            return .failed(.origin("libcurl: \(error.reason)"))
        }
    }

    // MARK: Redirects

    private func follow(_ location: String) throws(DownloadFailure) {
        guard redirects < Self.mostRedirects else {
            throw .origin("\(url.host) redirects once more after \(Self.mostRedirects) redirects")
        }
        let next: WebURL
        do throws(WebURL.Refusal) {
            next = try WebURL(location, relativeTo: url)
            guard next.scheme == .https || url.scheme == .http else {
                throw .forbidden("it leads from https to http")
            }
            if ticket.download.target.isNamedByClient { try allowList().check(next) }
        } catch {
            switch error {
            case .malformed(let sentence): throw .origin("a redirect from \(url.host) is refused: \(sentence)")
            case .forbidden(let sentence): throw .denied("a redirect from \(url.host) is refused: \(sentence)")
            }
        }
        redirects += 1
        url = next
    }

    private func allowList() throws(WebURL.Refusal) -> AllowList {
        do {
            return try rulesCache.rules(of: origin).allow
        } catch {
            throw .forbidden(error.reason)
        }
    }

    // MARK: Setting up a request

    private static func reader(
        _ url: WebURL, isConditional: Bool, _ framing: ReplyFraming, _ configuration: FetcherConfiguration
    ) -> ResponseReader {
        ResponseReader(
            host: url.host, isConditional: isConditional, framing: framing,
            limits: .init(image: configuration.maximumImageBytes))
    }

    private func setOptions(milliseconds: Int, token: Secret?) throws(EasyHandle.Failure) {
        let context = Unmanaged.passUnretained(self).toOpaque()
        try easy.keepMessages()
        try easy.set(CURLOPT_PRIVATE, pointer: context)
        try easy.set(CURLOPT_URL, url.string)
        // The path is normal already; libcurl is not to make another of it.
        try easy.set(CURLOPT_PATH_AS_IS, 1)
        try easy.set(CURLOPT_PROTOCOLS_STR, "http,https")
        try easy.set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https")
        try easy.set(CURLOPT_FOLLOWLOCATION, 0)
        try easy.set(CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_2TLS)
        // The first request to a host tells whether others may share its connection: worth a wait for what TLS decides in its
        // handshake. Without TLS they would wait for an answer, and one that never comes would hold up all of them.
        try easy.set(CURLOPT_PIPEWAIT, url.scheme == .https ? 1 : 0)
        try easy.set(CURLOPT_HTTP09_ALLOWED, 0)
        try easy.set(CURLOPT_USERAGENT, configuration.userAgent)
        try easy.setHeaders(
            ["Accept: image/avif,image/webp,image/png,image/jpeg,image/gif,image/*;q=0.5"]
                + (conditionForThisHop?.lines ?? []),
            token: token)

        // No signals; and no waiting for a resolver's thread, which would hold up everybody.
        try easy.set(CURLOPT_NOSIGNAL, 1)
        try easy.set(CURLOPT_QUICK_EXIT, 1)
        try easy.set(CURLOPT_TIMEOUT_MS, milliseconds)
        // What drips is given up though its time is not; libcurl counts in windows of seconds.
        try easy.set(CURLOPT_LOW_SPEED_LIMIT, origin.lowestSpeed)
        try easy.set(CURLOPT_LOW_SPEED_TIME, origin.lowestSpeed > 0 ? configuration.slowSeconds : 0)
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

        if url.address == nil || !origin.proxy.isEmpty { try lookup.attach(to: easy) }
        try easy.setOpenSocket(openSocket)
        try easy.set(CURLOPT_OPENSOCKETDATA, pointer: context)
        try easy.setCloseSocket(closeSocket)
        try easy.set(CURLOPT_CLOSESOCKETDATA, pointer: Unmanaged.passUnretained(connections).toOpaque())
        try easy.set(CURLOPT_FRESH_CONNECT, needsFreshConnection ? 1 : 0)
        try easy.setPrerequest(beforeRequest)
        try easy.set(CURLOPT_PREREQDATA, pointer: context)
        try easy.set(CURLOPT_HEADERFUNCTION, receiveHeader)
        try easy.set(CURLOPT_HEADERDATA, pointer: context)
        try easy.set(CURLOPT_WRITEFUNCTION, receiveBody)
        try easy.set(CURLOPT_WRITEDATA, pointer: context)
        try easy.setDebug(receiveAsItCame)
        try easy.set(CURLOPT_DEBUGDATA, pointer: context)
        try easy.set(CURLOPT_VERBOSE, 1)
        try easy.setResolverOverrides(configuration.resolverOverrides())
    }

    /// What is held, if it is this hop's URL that gave it: validators mean nothing to another (RFC 9110 section 8.8).
    private var conditionForThisHop: DownloadCondition? {
        ticket.download.condition.flatMap { $0.url == url.string ? $0 : nil }
    }

    /// The token, if this hop goes to the scheme, host and port of the origin's own URL; nobody else ever sees it (F39).
    private func tokenForThisHop() throws(DownloadFailure) -> Secret? {
        guard let token = ticket.download.token else { return nil }
        do {
            guard try rulesCache.rules(of: origin).template.authority == url.authority else { return nil }
        } catch {
            return nil
        }
        // RFC 6750 section 2.1. A line end within it would begin a header field of somebody else's making.
        let isToken = token.withBytes { bytes in
            !bytes.isEmpty && bytes.allSatisfy { Characters.token.contains($0) }
        }
        guard isToken else {
            throw .unauthorized(
                "the token holds bytes that a bearer token cannot have, and was not sent to \(url.host)")
        }
        return token
    }

    // MARK: What libcurl tells

    func receive(header line: UnsafeRawBufferPointer) -> Bool { response.header(line) }
    func receive(body bytes: UnsafeRawBufferPointer) -> Bool { response.body(bytes) }
    func receive(asItCame count: Int) { response.bodyAsItCame(count) }

    // MARK: Failures

    var timedOut: DownloadFailure {
        .timedOut("\(url.host) did not answer within \(origin.timeout) ms")
    }

    private func failure(_ code: CURLcode) -> DownloadFailure {
        if let refusal, openedSockets.isEmpty { return .denied(refusal) }
        if lookup.isRefused { return .busy(NameLookup.refusal) }
        switch code {
        case CURLE_OPERATION_TIMEDOUT:
            return .timedOut("\(url.host) did not answer in time: \(easy.failureText(code))")
        case CURLE_ABORTED_BY_CALLBACK where sent >= Self.mostSent:
            return .origin("\(url.host) ended the connection without an answer, \(sent) times")
        case CURLE_PARTIAL_FILE:
            return .origin("\(url.host) ended its answer before the image was whole")
        default:
            return .origin("\(url.host): \(easy.failureText(code))")
        }
    }
}
