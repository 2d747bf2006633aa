import CCurl
import CacheCore
import HelperProtocol
import LinuxSupport
import NIOCore
import Origins

/// A download with HTTP. It follows redirects, and applies the rules for scheme, `allow` and token to each hop.
final class DownloadTransfer: Transfer {
    static let maximumRedirects = 3

    private let download: Download
    private let rules: OriginRules
    private let start: WebURL
    private(set) var redirects = 0
    /// The hosts that the domain of the address names. After a redirect, no other host is tried.
    private var federation: FederatedHosts
    private(set) var redirectHeaders: [ResponseHeaders] = []
    private var response: ResponseReader
    private var token: Secret?

    init(_ download: Download, _ handle: TransferHandle, _ context: TransferContext) throws(FetchFailure) {
        let url: WebURL
        do {
            rules = try context.rulesCache.rules(of: download.origin)
            let known = rules.parse(download.target.url)
            url = if let known { known } else { try WebURL(asCurl: download.target.url) }
            if download.target.isNamedByClient { try rules.allow.check(url) }
        } catch {
            throw FetchFailure(url: error, "the URL cannot be requested")
        }
        self.download = download
        federation = FederatedHosts(domain: download.target.federatedDomain)
        start = url
        response = ResponseReader(
            host: url.host, framing: download.framing, limits: .init(image: context.settings.maximumImageBytes))
        try super.init(handle, to: url, deadline: handle.entry.deadline, context)
    }

    override func prepare(at now: NIODeadline) throws(FetchFailure) {
        response = ResponseReader(
            host: url.host, isConditional: conditionForThisHop != nil, framing: download.framing,
            limits: .init(image: settings.maximumImageBytes))
        token = try tokenForThisHop()
        try super.prepare(at: now)
    }

    override func setOptions(of easy: EasyHandle) throws(FetchFailure) {
        try easy.set(CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_2TLS)
        // With TLS, other transfers wait for the handshake to learn whether they can share the connection. Without TLS
        // they would wait for a response, and a host that never responds would block all of them.
        try easy.set(CURLOPT_PIPEWAIT, url.scheme == .https ? 1 : 0)
        try easy.setHeaders(
            [
                "Accept: image/avif,image/webp,image/png,image/jpeg,image/gif,image/*;q=0.5",
                "Accept-Encoding: identity",
            ]
                + (conditionForThisHop?.lines ?? []),
            token: token)
        // Aborts slow responses before the timeout. libcurl measures in windows of seconds.
        try easy.set(CURLOPT_LOW_SPEED_LIMIT, origin.lowestSpeed)
        try easy.set(CURLOPT_LOW_SPEED_TIME, origin.lowestSpeed > 0 ? environment.slowSeconds : 0)
        try easy.check(
            CURLOPT_DEBUGFUNCTION,
            ccurl_easy_set_debug_function(easy.raw) { _, kind, _, count, context in
                if kind == CURLINFO_DATA_IN { Transfer.of(context: context)?.receive(rawBody: count) }
                return 0
            })
        try easy.set(CURLOPT_DEBUGDATA, pointer: Unmanaged<Transfer>.passUnretained(self).toOpaque())
    }

    /// Only authorities of templates, and `allow` entries: the origin chooses other targets of redirects.
    override var isAllowedPrivately: Bool { !federation.isFederated && rules.mayBePrivate(url, from: start) }

    override var isFederated: Bool { federation.isFederated }
    override var domainToQuery: String? { federation.domainToQuery }

    override func accept(_ response: ServiceResponse) throws(FetchFailure) {
        url = try federation.accept(response, for: start, draw: environment.draw)
    }

    override func tryNextHost() -> Bool {
        // With less than libcurl's unit of 1 ms left, the next host would be blamed for the time that others took.
        guard deadline - NIODeadline.now() >= .milliseconds(1), let next = federation.popNext() else { return false }
        url = next
        return true
    }

    override var seenStatus: Int? { response.seenStatus }
    override func field(_ name: String) -> String? { response.field(name) }

    override func receive(header line: UnsafeRawBufferPointer) -> Bool {
        let wasInBody = response.finalStatus != nil
        guard response.header(line) else { return false }
        return wasInBody || response.finalStatus == nil || receiveRawBody()
    }

    /// Makes libcurl report the raw body. Before the body, it would also format a dozen messages for its log.
    private func receiveRawBody() -> Bool {
        do {
            try easy.set(CURLOPT_VERBOSE, 1)
            return true
        } catch {
            return false
        }
    }

    override func receive(body bytes: UnsafeRawBufferPointer) -> Bool { response.body(bytes) }
    override func receive(rawBody count: Int) { response.rawBody(count) }

    override func conclude(_ code: CURLcode) -> TransferOutcome? {
        counts[.bytes] += response.bodyBytes
        return super.conclude(code)
    }

    override func outcome(_ code: CURLcode) -> TransferOutcome? {
        if let status = response.finalStatus { counts[.init(status: status)] += 1 }
        guard let verdict = response.verdict(isWhole: code == CURLE_OK) else {
            // No request was sent, and the host is the reason.
            if easy.hasSentNothing, !lookup.isRefused, !lacksSocket, tryNextHost() { return nil }
            return .download(.failed(failure(code)))
        }
        switch verdict {
        case .image(let framed, let headers):
            let other = url.string == download.target.url ? nil : url.string
            return .download(image(framed, completed(headers), redirectedTo: other))
        case .missing(let headers):
            return .download(.missing(completed(headers)))
        case .notModified(let headers):
            return .download(.notModified(completed(headers)))
        case .redirect(let location):
            redirectHeaders.append(ResponseHeaders(response.headers.fields, delay: easy.secondsTaken))
            do {
                try follow(location)
                return nil
            } catch {
                let headers = ResponseHeaders(redirects: redirectHeaders)
                return .download(.unusable(error, headers))
            }
        case .unusable(let failure, let headers):
            return .download(.unusable(failure, completed(headers)))
        case .failed(let failure) where failure.kind == .unauthorized && download.token != nil && token == nil:
            // Another token would not be sent here either.
            return .download(.failed(.origin("HTTP status 401 from \(url.host), to which no token was sent")))
        case .failed(let failure):
            return .download(.failed(failure))
        }
    }

    private func completed(_ headers: ResponseHeaders) -> ResponseHeaders {
        var headers = headers
        headers.delay = easy.secondsTaken
        headers.redirects = redirectHeaders
        return headers
    }

    private func follow(_ location: String) throws(FetchFailure) {
        guard redirects < Self.maximumRedirects else {
            throw .origin("\(url.host) redirects again after \(Self.maximumRedirects) redirects")
        }
        let next: WebURL
        do throws(CacheFailure) {
            next = try WebURL(asCurl: location, relativeTo: url)
            guard next.scheme == .https || url.scheme == .http else { throw .denied("it leads from https to http") }
            if download.target.isNamedByClient { try rules.allow.check(next) }
            guard !federation.isFederated || next.hasOpenPort else {
                throw .denied("port \(next.port) is not permitted; use 443, or 1024 and above")
            }
        } catch {
            throw FetchFailure(url: error, "a redirect from \(url.host) is refused")
        }
        redirects += 1
        federation.discardRest()
        url = next
    }

    /// The condition, if its validators are from this hop's URL; others would not apply (RFC 9110 section 8.8).
    private var conditionForThisHop: DownloadCondition? {
        download.condition.flatMap { $0.url == url.string ? $0 : nil }
    }

    /// The token, if the hop goes to the scheme, host and port of an upstream that may receive it (F39).
    private func tokenForThisHop() throws(FetchFailure) -> Secret? {
        guard !federation.isFederated, let token = download.token, rules.showsToken(to: url) else { return nil }
        // A line break in the token would inject a header field.
        guard token.withBytes({ TokenText.isBearer($0) }) else {
            throw .unauthorized("the token was not sent to \(url.host): it is not a valid bearer token (RFC 6750)")
        }
        return token
    }
}

extension FetchFailure {
    /// A URL that is invalid, or that must not be requested.
    fileprivate init(url error: any Error, _ context: String) {
        let kind: Kind = if case CacheFailure.denied = error { .denied } else { .origin }
        self.init(kind, "\(context): \(error)")
    }
}

extension DownloadCondition {
    /// The header lines of the conditional request (RFC 9110 section 13.1).
    var lines: [String] {
        [etag.map { "If-None-Match: \($0)" }, lastModified.map { "If-Modified-Since: \($0)" }].compactMap { $0 }
    }
}
