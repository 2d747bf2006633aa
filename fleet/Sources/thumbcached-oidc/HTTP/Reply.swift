import HTTPTypes
import NIOCore

/// A response: OpenID Connect Back-Channel Logout 1.0, section 2.8, with errors as in RFC 6749, section 5.2.
struct Reply: Equatable, Sendable {
    let status: HTTPResponse.Status
    /// Nil on success.
    private(set) var error: String?
    private(set) var description = ""
    /// Fields beyond the common ones.
    private(set) var fields: HTTPFields = [:]

    private static let invalid = "invalid_request"

    /// The logout was published.
    static let done = Reply(status: .ok)

    /// - Parameter sentence: ASCII without quotes and backslashes (RFC 6749).
    static func refused(_ status: HTTPResponse.Status, _ sentence: String, _ fields: HTTPFields = [:]) -> Reply {
        Reply(status: status, error: invalid, description: sentence, fields: fields)
    }

    static func unavailable(_ status: HTTPResponse.Status, _ sentence: String, _ fields: HTTPFields = [:]) -> Reply {
        Reply(status: status, error: "temporarily_unavailable", description: sentence, fields: fields)
    }

    /// Section 2.8 requires status 400 for invalid requests and for failed logouts.
    init(_ failure: LogoutFailure) {
        switch failure {
        case .invalid(let sentence): self = .refused(.badRequest, sentence)
        case .unavailable(let sentence): self = .unavailable(.badRequest, sentence)
        }
    }

    private init(
        status: HTTPResponse.Status, error: String? = nil, description: String = "", fields: HTTPFields = [:]
    ) {
        (self.status, self.error, self.description, self.fields) = (status, error, description, fields)
    }

    var body: ByteBuffer {
        guard let error else { return ByteBuffer() }
        return ByteBuffer(string: "{\"error\":\"\(error)\",\"error_description\":\"\(Self.jsonText(description))\"}\n")
    }

    var head: HTTPResponse {
        var fields = fields
        fields[.cacheControl] = "no-store"
        fields[.contentLength] = "\(body.readableBytes)"
        if error != nil { fields[.contentType] = "application/json" }
        // A connection serves one request.
        fields[.connection] = "close"
        return HTTPResponse(status: status, headerFields: fields)
    }

    private static func jsonText(_ text: String) -> String {
        String(
            text.unicodeScalars.filter { $0.isASCII && $0.value >= 0x20 && $0 != "\"" && $0 != "\\" }.map(
                Character.init))
    }
}
