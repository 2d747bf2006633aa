import CCurl
import NIOCore
import ThumbnailCache

/// One token request: a POST on a connection of its own, whose answer is read whole or not at all.
///
/// A connection that has carried credentials is not used again, and none that was used before carries them: so what
/// another request left in it, or what it was allowed to reach, is of no concern. No redirect is followed: who the
/// refresh token is for is said in the configuration and nowhere else.
///
/// Few at once are enough, and for one origin only some of these, so that an endpoint that does not answer holds up no
/// other.
final class TokenTransfer: Transfer {
    static let mostAtOnce = 32
    static let mostAtOncePerOrigin = 8
    /// Bytes of an answer, header and body.
    static let longestAnswer = 64 << 10

    private let request: TokenRequest
    private let answer = TokenAnswerBuffer(limit: TokenTransfer.longestAnswer)

    /// - Parameter url: the endpoint's.
    init(
        _ request: TokenRequest, to url: WebURL, _ ticket: TransferTicket, _ context: TransferContext
    ) throws(TransferFailure) {
        self.request = request
        // However long it has waited. The endpoint may replace the refresh token as soon as it has the request: given
        // up before the answer, the new one would be lost. Who waits for the token has a time limit of its own.
        let milliseconds = max(context.configuration.leastTokenTime, request.origin.timeout)
        try super.init(ticket, to: url, deadline: .now() + .milliseconds(milliseconds), context)
    }

    override var asked: String { "the token endpoint at \(url.host)" }

    /// A refresh token that is refused is not tried again and again, whichever of the uid's users has it: an endpoint
    /// may come to refuse whoever asks from this machine.
    override func isRefusal(_ status: Int) -> Bool { [400, 401, 403].contains(status) }

    override func setOptions(of easy: EasyHandle) throws(EasyHandle.Failure) {
        try easy.set(CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1)
        try easy.setForm(TokenForm.body(of: request))
        try easy.setHeaders(
            ["Accept: application/json", "Content-Type: application/x-www-form-urlencoded", "Expect:"],
            token: TokenForm.basicCredentials(of: request.endpoint), scheme: "Basic")
        try easy.set(CURLOPT_FRESH_CONNECT, 1)
        try easy.set(CURLOPT_FORBID_REUSE, 1)
    }

    override func receive(header line: UnsafeRawBufferPointer) -> Bool { answer.countHeader(line.count) }
    override func receive(body bytes: UnsafeRawBufferPointer) -> Bool { answer.append(bytes) }

    override func outcome(_ code: CURLcode) -> TransferOutcome? {
        if answer.isTooLong {
            return .failed(.origin("the answer of \(asked) exceeds \(Self.longestAnswer) bytes"))
        }
        guard code == CURLE_OK else { return .failed(failure(code)) }
        return .token(
            answer.withBytes { bytes in
                TokenAnswer.read(
                    bytes, status: easy.status, host: url.host, longestToken: configuration.maximumTokenBytes)
            })
    }
}
