import CCurl
import CacheCore
import HelperProtocol
import LinuxSupport
import NIOCore
import Origins

/// One download: request after request as redirects lead on, each of them judged like the first, and with the rules
/// about scheme, `allow` and token asked anew.
final class DownloadTransfer: Transfer {
    static let mostRedirects = 3

    private let download: Download
    private let rules: OriginRules
    /// Where the first request goes.
    private let start: WebURL
    /// Requests made after the first.
    private(set) var redirects = 0
    /// Whom the domain of the address names, if any is to say. Behind a redirect nobody else is tried.
    private var federation: FederatedHosts
    /// What each redirect said that matters to a cache.
    private(set) var redirectHeaders: [ResponseHeaders] = []
    private var response: ResponseReader
    /// The token, if this hop is shown it.
    private var token: Secret?

    init(_ download: Download, _ handle: TransferHandle, _ context: TransferContext) throws(TransferFailure) {
        let url: WebURL
        do {
            rules = try context.rulesCache.rules(of: download.origin)
            let known = rules.takenApart(download.target.url)
            url = if let known { known } else { try WebURL(asCurl: download.target.url) }
            if download.target.isNamedByClient { try rules.allow.check(url) }
        } catch CacheFailure.denied(let reason) {
            throw .denied(reason)
        } catch {
            throw .origin("the URL to fetch is none: \(error)")
        }
        self.download = download
        federation = FederatedHosts(domain: download.target.federatedDomain)
        start = url
        response = ResponseReader(
            host: url.host, framing: download.framing, limits: .init(image: context.configuration.maximumImageBytes))
        try super.init(handle, to: url, deadline: handle.entry.deadline, context)
    }

    // MARK: One hop

    override func prepare(at now: NIODeadline) throws(TransferFailure) {
        response = ResponseReader(
            host: url.host, isConditional: conditionForThisHop != nil, framing: download.framing,
            limits: .init(image: configuration.maximumImageBytes))
        token = try tokenForThisHop()
        try super.prepare(at: now)
    }

    override func setOptions(of easy: EasyHandle) throws(TransferFailure) {
        try easy.set(CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_2TLS)
        // Whether others may share the first connection to a host is worth a wait for a TLS handshake. Without TLS they
        // would wait for an answer, and one that never comes would hold up all of them.
        try easy.set(CURLOPT_PIPEWAIT, url.scheme == .https ? 1 : 0)
        try easy.setHeaders(
            [
                "Accept: image/avif,image/webp,image/png,image/jpeg,image/gif,image/*;q=0.5",
                "Accept-Encoding: identity",
            ]
                + (conditionForThisHop?.lines ?? []),
            token: token)
        // What drips is given up though its time is not; libcurl counts in windows of seconds.
        try easy.set(CURLOPT_LOW_SPEED_LIMIT, origin.lowestSpeed)
        try easy.set(CURLOPT_LOW_SPEED_TIME, origin.lowestSpeed > 0 ? configuration.slowSeconds : 0)
        try easy.check(
            CURLOPT_DEBUGFUNCTION,
            ccurl_easy_set_debug_function(easy.raw) { _, kind, _, count, context in
                if kind == CURLINFO_DATA_IN { Transfer.of(context: context)?.receive(asItCame: count) }
                return 0
            })
        try easy.set(CURLOPT_DEBUGDATA, pointer: Unmanaged<Transfer>.passUnretained(self).toOpaque())
        try easy.set(CURLOPT_VERBOSE, 1)
    }

    /// An origin's configuration names its templates' schemes, hosts and ports, and what is under an `allow` entry.
    /// Where a redirect leads otherwise is the origin's word and not the operator's.
    override var isAllowedPrivately: Bool { !federation.areStrangers && rules.mayBePrivate(url, from: start) }

    override var isStrangers: Bool { federation.areStrangers }
    override var domainToAsk: String? { federation.domainToAsk }

    override func take(_ answer: ServiceAnswer) -> TransferFailure? {
        do throws(TransferFailure) {
            url = try federation.take(answer, for: start, draw: configuration.draw)
            return nil
        } catch {
            return error
        }
    }

    override func goOn() -> Bool {
        // libcurl counts milliseconds. With none left the next would be blamed for the time that others took.
        guard deadline - NIODeadline.now() >= .milliseconds(1), let next = federation.next() else { return false }
        url = next
        return true
    }

    override var seenStatus: Int? { response.seenStatus }
    override func field(_ name: String) -> String? { response.field(name) }
    override func receive(header line: UnsafeRawBufferPointer) -> Bool { response.header(line) }
    override func receive(body bytes: UnsafeRawBufferPointer) -> Bool { response.body(bytes) }
    override func receive(asItCame count: Int) { response.bodyAsItCame(count) }

    override func conclude(_ code: CURLcode) -> TransferOutcome? {
        counts[.bytes] += response.bodyBytes
        return super.conclude(code)
    }

    override func outcome(_ code: CURLcode) -> TransferOutcome? {
        if let status = response.finalStatus { counts[.init(status: status)] += 1 }
        guard let verdict = response.verdict(isWhole: code == CURLE_OK) else {
            // No request went out, for reasons of the host's.
            if easy.hasSentNothing, !lookup.isRefused, !lacksSocket, goOn() { return nil }
            return .failed(failure(code))
        }
        switch verdict {
        case .image(let framed, let headers):
            return .download(image(framed, completed(headers)))
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
                return .download(.unusable(CacheFailure(error), headers))
            }
        case .unusable(let failure, let headers):
            return .download(.unusable(failure, completed(headers)))
        case .failed(.unauthorized) where download.token != nil && token == nil:
            // Another token would not be shown here either.
            return .failed(.origin("HTTP status 401 from \(url.host), which the user's token is not for"))
        case .failed(let failure):
            return .download(.failed(failure))
        }
    }

    /// What the answer alone does not tell.
    private func completed(_ headers: ResponseHeaders) -> ResponseHeaders {
        var headers = headers
        headers.delay = easy.secondsTaken
        headers.redirects = redirectHeaders
        return headers
    }

    private func image(_ bytes: ImageBytes, _ headers: ResponseHeaders) -> DownloadOutcome {
        do {
            let shape = try ImageSniffer.sniff(bytes.image, maximumDimension: configuration.maximumDimension)
            let other = url.string == download.target.url ? nil : url.string
            return .image(DownloadedImage(bytes: bytes, shape: shape, headers: headers, redirectedTo: other))
        } catch {
            return .unusable(.badImage("from \(url.host): \(error.reason)"), headers)
        }
    }

    // MARK: Redirects

    private func follow(_ location: String) throws(TransferFailure) {
        guard redirects < Self.mostRedirects else {
            throw .origin("\(url.host) redirects once more after \(Self.mostRedirects) redirects")
        }
        let next: WebURL
        do throws(CacheFailure) {
            next = try WebURL(asCurl: location, relativeTo: url)
            guard next.scheme == .https || url.scheme == .http else { throw .denied("it leads from https to http") }
            if download.target.isNamedByClient { try rules.allow.check(next) }
            guard !federation.areStrangers || next.hasOpenPort else {
                throw .denied("it leads to port \(next.port), which is another service's")
            }
        } catch {
            let sentence = "a redirect from \(url.host) is refused: \(error)"
            if case .denied = error { throw .denied(sentence) } else { throw .origin(sentence) }
        }
        redirects += 1
        federation.settle()
        url = next
    }

    // MARK: What is sent

    /// What is held, if it is this hop's URL that gave it: validators mean nothing to another (RFC 9110 section 8.8).
    private var conditionForThisHop: DownloadCondition? {
        download.condition.flatMap { $0.url == url.string ? $0 : nil }
    }

    /// The token, if this hop goes to the scheme, host and port of a link that it is for: nobody else sees it (F39).
    private func tokenForThisHop() throws(TransferFailure) -> Secret? {
        guard !federation.areStrangers, let token = download.token, rules.showsToken(to: url) else { return nil }
        // A line end within it would begin a header field of somebody else's making.
        guard token.withBytes({ TokenText.isBearer($0) }) else {
            throw .refused("the token holds bytes that a bearer token cannot have, and was not sent to \(url.host)")
        }
        return token
    }
}

extension DownloadCondition {
    /// The lines of a request's header that say it (RFC 9110 section 13.1).
    var lines: [String] {
        [etag.map { "If-None-Match: \($0)" }, lastModified.map { "If-Modified-Since: \($0)" }].compactMap { $0 }
    }
}
