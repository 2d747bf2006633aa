import CCurl
import Glibc
import NIOCore
import ThumbnailCache

/// One token request under way: a POST on a connection of its own, whose answer is read whole or not at all.
///
/// A connection that has carried credentials is not used again, and none that was used before carries them: so what another
/// request left in it, or what it was allowed to reach, is of no concern. No redirect is followed: who the refresh token is for is
/// said in the configuration and nowhere else.
///
/// Only the fetcher's thread touches it; libcurl calls it back on that thread.
final class TokenTransfer {
    /// Bytes of an answer, header and body.
    static let longestAnswer = 64 << 10

    let ticket: TokenTicket
    let easy: EasyHandle
    private let configuration: FetcherConfiguration
    private let url: WebURL
    /// libcurl reads it where it lies.
    private let form: Secret
    private let answer = TokenAnswerBuffer(limit: TokenTransfer.longestAnswer)
    private var refusal: String?
    private var hasOpenedSocket = false
    private var lacksSocket = false
    /// Leave to ask the endpoint's host, until it is told what that showed.
    var permit: HostPermit?
    private let lookup: NameLookup

    private var origin: Origin { ticket.request.origin }

    /// - Parameter url: the endpoint's.
    init(
        _ ticket: TokenTicket, to url: WebURL, _ configuration: FetcherConfiguration, _ lookups: NameLookups
    ) throws(TokenFailure) {
        self.ticket = ticket
        self.configuration = configuration
        self.url = url
        lookup = NameLookup(of: .init(ticket.request.uid, ticket.request.origin), among: lookups)
        form = TokenForm.body(of: ticket.request)
        do {
            easy = try EasyHandle()
        } catch {
            throw .origin("libcurl: \(error.reason)")
        }
        // A proxy is asked by name; what the URL names as a number can still be judged, as with images.
        if !origin.proxy.isEmpty, let address = url.address, let reason = refusalReason(address) {
            throw .denied(deniedSentence(address, reason))
        }
        // However long it has waited. The endpoint may replace the refresh token as soon as it has the request: given up before the
        // answer, the new one would be lost. Who waits for the token has a patience of their own.
        let milliseconds = max(configuration.leastTokenTime, origin.timeout)
        do {
            try setOptions(milliseconds: Int(clamping: milliseconds))
        } catch {
            throw .origin("cannot ask \(url.host) for a token: \(error.reason)")
        }
    }

    /// What the request that libcurl ended with `code` shows of the host; as ``Transfer/finding(_:)``.
    func finding(_ code: CURLcode) -> CircuitBreakers.Finding {
        if refusal != nil || lacksSocket, !hasOpenedSocket { return .nothing }
        if lookup.isRefused || easy.isUnresolvedForWantOfRoom(code) { return .nothing }
        let status = easy.status
        if status == 429 || status >= 500 {
            return .failed(retryAfter: status == 429 || status == 503 ? retryAfter : nil)
        }
        switch code {
        // A refresh token that is refused is not tried again and again, whichever of the uid's users has it: an endpoint may come to
        // refuse whoever asks from this machine.
        case CURLE_OK: return [400, 401, 403].contains(status) ? .refused : .works
        // Ended from here, for what the answer is and not for how it came.
        case CURLE_WRITE_ERROR where status != 0: return .works
        case CURLE_OUT_OF_MEMORY, CURLE_FAILED_INIT: return .nothing
        default: return easy.isUnreachable(code) ? .unreachable : .failed(retryAfter: nil)
        }
    }

    private var retryAfter: Int64? {
        easy.field("Retry-After").flatMap {
            RetryAfter.milliseconds($0, date: easy.field("Date"), now: configuration.wallClock())
        }
    }

    /// What the request comes to that libcurl ended with `code`.
    func conclude(_ code: CURLcode) -> Result<TokenGrant, TokenFailure> {
        if code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY { lookup.end() }
        guard code == CURLE_OK else { return .failure(failure(code)) }
        return answer.withBytes { bytes in
            TokenAnswer.read(bytes, status: easy.status, host: url.host, longestToken: configuration.maximumTokenBytes)
        }
    }

    private func setOptions(milliseconds: Int) throws(EasyHandle.Failure) {
        let context = Unmanaged.passUnretained(self).toOpaque()
        try easy.keepMessages()
        try easy.set(CURLOPT_URL, url.string)
        try easy.set(CURLOPT_PATH_AS_IS, 1)
        try easy.set(CURLOPT_PROTOCOLS_STR, "http,https")
        try easy.set(CURLOPT_FOLLOWLOCATION, 0)
        try easy.set(CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1)
        try easy.set(CURLOPT_HTTP09_ALLOWED, 0)
        try easy.set(CURLOPT_USERAGENT, configuration.userAgent)
        try easy.set(CURLOPT_POST, 1)
        try easy.set(CURLOPT_POSTFIELDSIZE, form.count)
        // Lent for longer than the call, but for no longer than this object, which holds the form, has the handle.
        try easy.set(
            CURLOPT_POSTFIELDS, pointer: UnsafeMutableRawPointer(mutating: form.withBytes { $0.baseAddress }))
        try easy.setHeaders(
            ["Accept: application/json", "Content-Type: application/x-www-form-urlencoded", "Expect:"],
            token: TokenForm.basicCredentials(of: ticket.request.endpoint), scheme: "Basic")
        try easy.set(CURLOPT_FRESH_CONNECT, 1)
        try easy.set(CURLOPT_FORBID_REUSE, 1)

        try easy.set(CURLOPT_NOSIGNAL, 1)
        try easy.set(CURLOPT_QUICK_EXIT, 1)
        try easy.set(CURLOPT_TIMEOUT_MS, milliseconds)
        try easy.set(CURLOPT_CONNECTTIMEOUT_MS, min(milliseconds, max(1, Int(clamping: origin.connectTimeout))))
        try easy.set(CURLOPT_PROXY, origin.proxy)
        try easy.set(CURLOPT_NOPROXY, "")
        try easy.set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1)
        try easy.set(CURLOPT_NETRC, 0)
        try easy.set(CURLOPT_SSL_VERIFYPEER, 1)
        try easy.set(CURLOPT_SSL_VERIFYHOST, 2)
        try easy.set(CURLOPT_SSLVERSION, CURL_SSLVERSION_TLSv1_2)
        if !origin.caFile.isEmpty { try easy.set(CURLOPT_CAINFO, origin.caFile) }

        if url.address == nil || !origin.proxy.isEmpty { try lookup.attach(to: easy) }
        try easy.setOpenSocket(openTokenSocket)
        try easy.set(CURLOPT_OPENSOCKETDATA, pointer: context)
        try easy.setPrerequest(beforeTokenRequest)
        try easy.set(CURLOPT_PREREQDATA, pointer: context)
        try easy.set(CURLOPT_HEADERFUNCTION, receiveTokenHeader)
        try easy.set(CURLOPT_HEADERDATA, pointer: context)
        try easy.set(CURLOPT_WRITEFUNCTION, receiveTokenBody)
        try easy.set(CURLOPT_WRITEDATA, pointer: context)
        try easy.setResolverOverrides(configuration.resolverOverrides())
    }

    // MARK: What libcurl asks and tells

    fileprivate func socket(for address: UnsafePointer<curl_sockaddr>) -> curl_socket_t {
        lookup.end()
        if origin.proxy.isEmpty {
            // Read where it lies: see `Transfer`.
            let field = UnsafeRawPointer(address) + (MemoryLayout<curl_sockaddr>.offset(of: \.addr) ?? 0)
            let ip = IPAddress(field.assumingMemoryBound(to: sockaddr.self), length: Int(address.pointee.addrlen))
            guard let ip else { return CURL_SOCKET_BAD }
            if let reason = refusalReason(ip) {
                refusal = deniedSentence(ip, reason)
                return CURL_SOCKET_BAD
            }
        }
        let socket = Glibc.socket(
            address.pointee.family, address.pointee.socktype | Int32(SOCK_CLOEXEC.rawValue), address.pointee.protocol)
        // As with images: a family that this machine does not have is the address's fault.
        if socket >= 0 { hasOpenedSocket = true } else if errno != EAFNOSUPPORT { lacksSocket = true }
        return socket
    }

    /// Whether the refresh token may go out on the connection that was made.
    fileprivate func maySend(to remote: String, from local: String) -> Bool {
        guard origin.proxy.isEmpty, let remote = IPAddress(end: remote),
            let reason = refusalReason(remote, from: IPAddress(end: local))
        else {
            permit?.connected(at: .now())
            return true
        }
        refusal = deniedSentence(remote, reason)
        hasOpenedSocket = false
        return false
    }

    fileprivate func receive(header count: Int) -> Bool { answer.countHeader(count) }
    fileprivate func receive(body bytes: UnsafeRawBufferPointer) -> Bool { answer.append(bytes) }

    private func refusalReason(_ address: IPAddress, from local: IPAddress? = nil) -> String? {
        origin.allowPrivateAddresses ? nil : configuration.addressGuard.refusal(ofRemote: address, local: local)
    }

    private func deniedSentence(_ address: IPAddress, _ reason: String) -> String {
        "the token endpoint's host \(url.host) is at \(address), \(reason): "
            + "the origin's allow-private-addresses would have to permit it"
    }

    private func failure(_ code: CURLcode) -> TokenFailure {
        if let refusal, !hasOpenedSocket { return .denied(refusal) }
        if lookup.isRefused { return .busy(NameLookup.refusal) }
        if answer.isTooLong {
            return .origin("the answer of the token endpoint at \(url.host) exceeds \(Self.longestAnswer) bytes")
        }
        let sentence = "the token endpoint at \(url.host): \(easy.failureText(code))"
        return code == CURLE_OPERATION_TIMEDOUT ? .timedOut(sentence) : .origin(sentence)
    }
}

// The functions that libcurl calls. The context is the transfer, which the line keeps for as long as libcurl has the handle.

private func transfer(_ context: UnsafeMutableRawPointer?) -> TokenTransfer? {
    context.map { Unmanaged<TokenTransfer>.fromOpaque($0).takeUnretainedValue() }
}

private func openTokenSocket(
    _ context: UnsafeMutableRawPointer?, _ purpose: curlsocktype, _ address: UnsafeMutablePointer<curl_sockaddr>?
) -> curl_socket_t {
    guard let transfer = transfer(context), let address else { return CURL_SOCKET_BAD }
    return transfer.socket(for: address)
}

private func beforeTokenRequest(
    _ context: UnsafeMutableRawPointer?, _ remote: UnsafeMutablePointer<CChar>?,
    _ local: UnsafeMutablePointer<CChar>?, _ remotePort: Int32, _ localPort: Int32
) -> Int32 {
    guard let transfer = transfer(context), let remote, let local else { return CURL_PREREQFUNC_ABORT }
    let maySend = transfer.maySend(to: String(cString: remote), from: String(cString: local))
    return maySend ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT
}

private func receiveTokenHeader(
    _ bytes: UnsafeMutablePointer<CChar>?, _ size: Int, _ count: Int, _ context: UnsafeMutableRawPointer?
) -> Int {
    transfer(context)?.receive(header: size * count) == true ? size * count : -1
}

private func receiveTokenBody(
    _ bytes: UnsafeMutablePointer<CChar>?, _ size: Int, _ count: Int, _ context: UnsafeMutableRawPointer?
) -> Int {
    let piece = UnsafeRawBufferPointer(start: bytes, count: size * count)
    return transfer(context)?.receive(body: piece) == true ? piece.count : -1
}
