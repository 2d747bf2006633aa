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

    let ticket: DownloadTicket
    let easy: EasyHandle
    let configuration: FetcherConfiguration
    private(set) var url: WebURL
    /// Requests made after the first.
    private(set) var redirects = 0
    /// Bytes of body received, of all hops.
    private(set) var bytes = 0
    /// Addresses that were not connected to.
    private(set) var refusedAddresses = 0
    private(set) var response: ResponseReader
    private let connections: ConnectionTable
    private let book: OriginBook
    /// Of this hop: why an address was refused, and the sockets opened to others.
    private var refusal: String?
    private var openedSockets: [curl_socket_t] = []
    /// Whether the connection that libcurl would have used again was not fit for it, and this hop is to have its own.
    private var needsFreshConnection = false

    var origin: Origin { ticket.download.origin }

    init(
        ticket: DownloadTicket, easy: EasyHandle, connections: ConnectionTable, book: OriginBook,
        configuration: FetcherConfiguration
    ) throws(DownloadFailure) {
        do {
            url = try WebURL(ticket.download.target.url)
        } catch {
            throw .origin("the URL to fetch is none: \(error.sentence)")
        }
        self.ticket = ticket
        self.easy = easy
        self.connections = connections
        self.book = book
        self.configuration = configuration
        response = Self.reader(url, configuration)
    }

    // MARK: The way of a download

    /// Sets up the request for the current hop.
    func prepare(at now: NIODeadline) throws(DownloadFailure) {
        let left = ticket.entry.deadline - now
        guard left > .zero else { throw timedOut }
        easy.reset()
        refusal = nil
        openedSockets = []
        response = Self.reader(url, configuration)
        // A proxy is asked by name, so that no socket is ever opened to what the URL names; what it names as a number can still be judged.
        if !origin.proxy.isEmpty, let address = url.address, let reason = refusalReason(address) {
            throw .denied(deniedSentence(address, reason))
        }
        let token = try tokenForThisHop()
        do {
            try setOptions(milliseconds: max(1, Int(left.nanoseconds / 1_000_000)), token: token)
        } catch {
            throw .origin("cannot ask \(url.host): \(error.reason)")
        }
    }

    /// What the hop that libcurl ended with `code` comes to; nil when another request is to follow, for which
    /// ``prepare(at:)`` is to be called.
    func conclude(_ code: CURLcode) -> DownloadOutcome? {
        bytes += response.bodyBytes
        if code == CURLE_ABORTED_BY_CALLBACK, needsFreshConnection { return nil }
        needsFreshConnection = false
        guard let verdict = response.verdict(isWhole: code == CURLE_OK) else { return .failed(failure(code)) }
        switch verdict {
        case .image(var builder, let headers):
            return image(builder.finish(ticket.download.framing), headers)
        case .missing(let headers):
            return .missing(headers)
        case .redirect(let location):
            do {
                try follow(location)
                return nil
            } catch {
                return .failed(error)
            }
        case .failed(let failure):
            return .failed(failure)
        }
    }

    private func image(_ bytes: ImageBytes, _ headers: ResponseHeaders) -> DownloadOutcome {
        do {
            let shape = try ImageSniffer.sniff(bytes.image, maximumDimension: configuration.maximumDimension)
            return .image(DownloadedImage(bytes: bytes, shape: shape, headers: headers))
        } catch {
            return .failed(.badImage("from \(url.host): \(error.reason)"))
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
            return try book.rules(of: origin).allow
        } catch {
            throw .forbidden(error.reason)
        }
    }

    // MARK: Setting up a request

    private static func reader(_ url: WebURL, _ configuration: FetcherConfiguration) -> ResponseReader {
        ResponseReader(host: url.host, limits: .init(image: configuration.maximumImageBytes))
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
            ["Accept: image/avif,image/webp,image/png,image/jpeg,image/gif,image/*;q=0.5"], token: token
        )

        // No signals; and no waiting for a resolver's thread, which would hold up everybody: see swift.md.
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

    /// The token, if this hop goes to the scheme, host and port of the origin's own URL; nobody else ever sees it (F39).
    private func tokenForThisHop() throws(DownloadFailure) -> Secret? {
        guard let token = ticket.download.token else { return nil }
        do {
            guard try book.rules(of: origin).template.authority == url.authority else { return nil }
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

    // MARK: What libcurl asks and tells

    /// The socket for a connection to `address`, or CURL_SOCKET_BAD for one that must not be reached.
    fileprivate func socket(for address: UnsafePointer<curl_sockaddr>) -> curl_socket_t {
        let family = address.pointee.family
        if origin.proxy.isEmpty {
            // The address reaches beyond the struct that it begins in, whose last field is declared too short for IPv6:
            // so it is read where it lies, never as a copy of that field.
            let field = UnsafeRawPointer(address) + (MemoryLayout<curl_sockaddr>.offset(of: \.addr) ?? 0)
            let ip = IPAddress(field.assumingMemoryBound(to: sockaddr.self), length: Int(address.pointee.addrlen))
            guard let ip, !isRefused(ip) else { return CURL_SOCKET_BAD }
        }
        let socket = Glibc.socket(
            family, address.pointee.socktype | Int32(SOCK_CLOEXEC.rawValue), address.pointee.protocol)
        if socket >= 0 { openedSockets.append(socket) }
        return socket
    }

    /// Whether a request may go out on the connection that libcurl chose. The address of a new one has been judged when its
    /// socket was opened, but one that is used again may have been opened for an origin that is allowed more (F58).
    fileprivate func maySend(on ends: ConnectionTable.Ends) -> Bool {
        if origin.proxy.isEmpty {
            guard let address = IPAddress(String(ends.remoteAddress.prefix { $0 != "%" })) else {
                refusal = "\(url.host) is connected to what is no IP address"
                openedSockets = []
                return false
            }
            guard !isRefused(address) else {
                openedSockets = []
                return false
            }
        }
        if connections.add(ends, among: openedSockets) || connections.isClean(ends, for: easy) { return true }
        needsFreshConnection = true
        return false
    }

    fileprivate func receive(header line: UnsafeRawBufferPointer) -> Bool { response.header(line) }
    fileprivate func receive(body bytes: UnsafeRawBufferPointer) -> Bool { response.body(bytes) }
    fileprivate func receive(asItCame count: Int) { response.bodyAsItCame(count) }

    private func isRefused(_ address: IPAddress) -> Bool {
        guard let reason = refusalReason(address) else { return false }
        refusedAddresses += 1
        refusal = deniedSentence(address, reason)
        return true
    }

    private func refusalReason(_ address: IPAddress) -> String? {
        origin.allowPrivateAddresses ? nil : configuration.addressGuard.refusal(of: address)
    }

    private func deniedSentence(_ address: IPAddress, _ reason: String) -> String {
        "\(url.host) is at \(address), \(reason): the origin's allow-private-addresses would have to permit it"
    }

    // MARK: Failures

    private var timedOut: DownloadFailure {
        .timedOut("\(url.host) did not answer within \(origin.timeout) ms")
    }

    private func failure(_ code: CURLcode) -> DownloadFailure {
        if let refusal, openedSockets.isEmpty { return .denied(refusal) }
        switch code {
        case CURLE_OPERATION_TIMEDOUT:
            return .timedOut("\(url.host) did not answer in time: \(easy.failureText(code))")
        case CURLE_PARTIAL_FILE:
            return .origin("\(url.host) ended its answer before the image was whole")
        default:
            return .origin("\(url.host): \(easy.failureText(code))")
        }
    }
}

// The functions that libcurl calls. The context is the transfer, which the loop keeps for as long as libcurl has the handle.

private func transfer(_ context: UnsafeMutableRawPointer?) -> Transfer? {
    context.map { Unmanaged<Transfer>.fromOpaque($0).takeUnretainedValue() }
}

private func openSocket(
    _ context: UnsafeMutableRawPointer?, _ purpose: curlsocktype, _ address: UnsafeMutablePointer<curl_sockaddr>?
) -> curl_socket_t {
    guard let transfer = transfer(context), let address else { return CURL_SOCKET_BAD }
    return transfer.socket(for: address)
}

private func beforeRequest(
    _ context: UnsafeMutableRawPointer?, _ remote: UnsafeMutablePointer<CChar>?,
    _ local: UnsafeMutablePointer<CChar>?, _ remotePort: Int32, _ localPort: Int32
) -> Int32 {
    guard let transfer = transfer(context), let remote, let local else { return CURL_PREREQFUNC_ABORT }
    let ends = ConnectionTable.Ends(
        localAddress: String(cString: local), localPort: localPort,
        remoteAddress: String(cString: remote), remotePort: remotePort)
    return transfer.maySend(on: ends) ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT
}

/// A function for data returns how much it took: anything else makes libcurl give up.
private func receiveHeader(
    _ bytes: UnsafeMutablePointer<CChar>?, _ size: Int, _ count: Int, _ context: UnsafeMutableRawPointer?
) -> Int {
    let line = UnsafeRawBufferPointer(start: bytes, count: size * count)
    return transfer(context)?.receive(header: line) == true ? line.count : -1
}

private func receiveBody(
    _ bytes: UnsafeMutablePointer<CChar>?, _ size: Int, _ count: Int, _ context: UnsafeMutableRawPointer?
) -> Int {
    let piece = UnsafeRawBufferPointer(start: bytes, count: size * count)
    return transfer(context)?.receive(body: piece) == true ? piece.count : -1
}

private func receiveAsItCame(
    _ easy: UnsafeMutableRawPointer?, _ kind: curl_infotype, _ bytes: UnsafeMutablePointer<CChar>?, _ count: Int,
    _ context: UnsafeMutableRawPointer?
) -> Int32 {
    if kind == CURLINFO_DATA_IN { transfer(context)?.receive(asItCame: count) }
    return 0
}
