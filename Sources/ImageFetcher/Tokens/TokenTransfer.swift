import CCurl
import COpenSSL
import CacheCore
import LinuxSupport
import NIOCore
import Origins

/// One token request: a POST on a connection of its own, whose answer is read whole or not at all.
///
/// A connection that has carried credentials is not used again, and none that was used before carries them: so what
/// another request left in it, or what it was allowed to reach, is of no concern. No redirect is followed: who the
/// refresh token is for is said in the configuration and nowhere else.
///
/// Few at once are enough, and one origin may have only some of them: an endpoint that hangs holds up no other.
final class TokenTransfer: Transfer {
    static let mostAtOnce = 32
    static let mostAtOncePerOrigin = 8
    /// Bytes of an answer, header and body.
    static let longestAnswer = 64 << 10

    private let request: TokenRequest
    /// The body so far, wiped at the end. It has all its room from the beginning, so that nothing is moved.
    private var answer: [UInt8] = []
    private var headerBytes = 0
    private var isTooLong = false

    /// - Parameter url: the endpoint's.
    init(
        _ request: TokenRequest, to url: WebURL, _ handle: TransferHandle, _ context: TransferContext
    ) throws(TransferFailure) {
        self.request = request
        // However long it has waited. The endpoint may replace the refresh token as soon as it has the request: given
        // up before the answer, the new one would be lost. Who waits for the token has a time limit of its own.
        let milliseconds = max(context.configuration.leastTokenTime, request.origin.timeout)
        answer.reserveCapacity(Self.longestAnswer)
        try super.init(handle, to: url, deadline: .now() + .milliseconds(milliseconds), context)
    }

    deinit { answer.wipe() }

    override var asked: String { "the token endpoint at \(url.host)" }

    /// A refresh token that is refused is not tried again and again, whichever of the uid's users has it: an endpoint
    /// may come to refuse whoever asks from this machine.
    override func isRefusal(_ status: Int) -> Bool { [400, 401, 403].contains(status) }

    override func setOptions(of easy: EasyHandle) throws(TransferFailure) {
        try easy.set(CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1)
        try easy.setForm(TokenForm.body(of: request))
        try easy.setHeaders(
            [
                "Accept: application/json", "Accept-Encoding: identity",
                "Content-Type: application/x-www-form-urlencoded", "Expect:",
            ],
            token: TokenForm.basicCredentials(of: request.endpoint), scheme: "Basic")
        try easy.set(CURLOPT_FRESH_CONNECT, 1)
        try easy.set(CURLOPT_FORBID_REUSE, 1)
    }

    override func receive(header line: UnsafeRawBufferPointer) -> Bool {
        headerBytes += line.count
        isTooLong = isTooLong || headerBytes > Self.longestAnswer
        return !isTooLong
    }

    override func receive(body bytes: UnsafeRawBufferPointer) -> Bool {
        isTooLong = isTooLong || bytes.count > Self.longestAnswer - answer.count
        if !isTooLong { answer.append(contentsOf: bytes) }
        return !isTooLong
    }

    override func outcome(_ code: CURLcode) -> TransferOutcome? {
        if isTooLong { return .failed(.origin("the answer of \(asked) exceeds \(Self.longestAnswer) bytes")) }
        guard code == CURLE_OK else { return .failed(failure(code)) }
        return .token(
            answer.withUnsafeBytes {
                TokenAnswer.read($0, status: easy.status, host: url.host, longestToken: configuration.maximumTokenBytes)
            })
    }
}

/// What is sent to a token endpoint, made in memory that is wiped: copies of a Swift string nobody could wipe.
private enum TokenForm {
    /// RFC 6749 section 6. A client without a secret names itself here (section 3.2.1), one with it in its credentials.
    static func body(of request: TokenRequest) -> Secret {
        let endpoint = request.endpoint
        return Secret(capacity: 64 + 3 * (request.refreshToken.count + endpoint.clientID.utf8.count)) { bytes in
            bytes += Array("grant_type=refresh_token&refresh_token=".utf8)
            request.refreshToken.withBytes { bytes.appendEncoded($0) }
            if endpoint.clientSecret == nil {
                bytes += Array("&client_id=".utf8)
                bytes.appendEncoded(endpoint.clientID.utf8)
            }
        }
    }

    /// RFC 6749 section 2.3.1: id and secret, form-encoded, as name and password of RFC 7617. Nil without a secret.
    static func basicCredentials(of endpoint: TokenEndpoint) -> Secret? {
        guard let secret = endpoint.clientSecret else { return nil }
        let plain = Secret(capacity: 1 + 3 * (secret.count + endpoint.clientID.utf8.count)) { bytes in
            bytes.appendEncoded(endpoint.clientID.utf8)
            bytes.append(UInt8(ascii: ":"))
            secret.withBytes { bytes.appendEncoded($0) }
        }
        let length = (plain.count + 2) / 3 * 4
        // One more for the NUL that OpenSSL puts at the end.
        return withWipedMemory(length + 1) { encoded in
            _ = plain.withBytes { plain in
                EVP_EncodeBlock(
                    encoded.baseAddress?.assumingMemoryBound(to: UInt8.self),
                    plain.baseAddress?.assumingMemoryBound(to: UInt8.self), Int32(clamping: plain.count))
            }
            return Secret(encoded.prefix(length))
        }
    }
}

extension Secret {
    /// Made in memory that is wiped. With all the room at once nothing is moved, and what is wiped is the only copy.
    convenience init(capacity: Int, _ fill: (inout [UInt8]) -> Void) {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(capacity)
        defer { bytes.wipe() }
        fill(&bytes)
        self.init(bytes)
    }
}
