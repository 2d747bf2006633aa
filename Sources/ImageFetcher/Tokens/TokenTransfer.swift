import CCurl
import COpenSSL
import CacheCore
import HelperProtocol
import LinuxSupport
import NIOCore
import Origins

/// A token request: one POST on a connection of its own, to which earlier requests have sent nothing.
///
/// Redirects are not followed, because only the configuration decides who receives the refresh token. The limit per
/// origin ensures that an endpoint that hangs does not block the others.
final class TokenTransfer: Transfer {
    static let maximumConcurrent = 32
    static let maximumPerOrigin = 8
    /// Maximum bytes of a response header, and of a body.
    static let maximumResponseBytes = 64 << 10

    private let request: TokenRequest
    /// The body so far. Its capacity is reserved at once, so that no copy is left when it is wiped.
    private var response: [UInt8] = []
    private var headerBytes = 0
    private var isTooLong = false

    init(
        _ request: TokenRequest, to url: WebURL, _ handle: TransferHandle, _ context: TransferContext
    ) throws(FetchFailure) {
        self.request = request
        // Time in the queue does not count: a timeout before the response could lose a refresh token that the endpoint
        // has just issued. Downloads that wait for the token have their own timeout.
        let milliseconds = max(context.environment.minimumTokenTimeout, request.origin.timeout)
        response.reserveCapacity(Self.maximumResponseBytes)
        try super.init(handle, to: url, deadline: .now() + .milliseconds(milliseconds), context)
    }

    deinit { response.wipe() }

    override var hostName: String { "the token endpoint at \(url.host)" }

    /// Rejected credentials count as failures of the account, because an endpoint may block a machine that keeps
    /// trying.
    override func isRefusal(_ status: Int) -> Bool { [400, 401, 403].contains(status) }

    override func setOptions(of easy: EasyHandle) throws(FetchFailure) {
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
        isTooLong = isTooLong || headerBytes > Self.maximumResponseBytes
        return !isTooLong
    }

    override func receive(body bytes: UnsafeRawBufferPointer) -> Bool {
        isTooLong = isTooLong || bytes.count > Self.maximumResponseBytes - response.count
        if !isTooLong { response.append(contentsOf: bytes) }
        return !isTooLong
    }

    override func outcome(_ code: CURLcode) -> TransferOutcome? {
        guard !isTooLong else {
            return .token(.failure(.origin("the response of \(hostName) exceeds \(Self.maximumResponseBytes) bytes")))
        }
        guard code == CURLE_OK else { return .token(.failure(failure(code))) }
        return .token(
            response.withUnsafeBytes {
                TokenResponse.read(
                    $0, status: easy.status, host: url.host, longestToken: settings.maximumTokenBytes)
            })
    }
}

/// The body and credentials of a token request, in memory that is wiped. Copies of a Swift string could not be wiped.
private enum TokenForm {
    /// RFC 6749 section 6. A client without a secret sends its id here (section 3.2.1), else in the credentials.
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

    /// RFC 6749 section 2.3.1: id and secret, form-encoded, as name and password (RFC 7617). Nil without a secret.
    static func basicCredentials(of endpoint: TokenEndpoint) -> Secret? {
        guard let secret = endpoint.clientSecret else { return nil }
        let plain = Secret(capacity: 1 + 3 * (secret.count + endpoint.clientID.utf8.count)) { bytes in
            bytes.appendEncoded(endpoint.clientID.utf8)
            bytes.append(UInt8(ascii: ":"))
            secret.withBytes { bytes.appendEncoded($0) }
        }
        let length = (plain.count + 2) / 3 * 4
        // One byte more, for the NUL that OpenSSL appends.
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
    /// Fills a secret in memory that is wiped. `capacity` must suffice, so that no copy is made while it grows.
    convenience init(capacity: Int, _ fill: (inout [UInt8]) -> Void) {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(capacity)
        defer { bytes.wipe() }
        fill(&bytes)
        self.init(bytes)
    }
}
