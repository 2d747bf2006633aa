import JSONReader

/// The claims of a logout token: OpenID Connect Back-Channel Logout 1.0, section 2.4. Read only after its signature was
/// verified.
struct LogoutClaims: Sendable {
    var issuer: String
    /// One or several, as a string or as an array.
    var audiences: [String]
    /// Seconds since 1970; may be infinite.
    var issuedAt: Double
    /// Nil in a token without `exp`.
    var expires: Double?
    /// `jti`
    var id: String
    var subject: String?
    /// `sid`
    var session: String?

    static let event = "http://schemas.openid.net/event/backchannel-logout"
    private static let longestID = 255

    init(_ json: [UInt8]) throws(LogoutFailure) {
        guard let claims = JSONValue(json)?.members else {
            throw .invalid("the logout token's claims are no JSON object")
        }
        func optional<Value>(
            _ name: String, _ what: String, _ read: (JSONValue) -> Value?
        ) throws(LogoutFailure) -> Value? {
            guard let claim = claims[name] else { return nil }
            guard let value = read(claim) else { throw .invalid("the logout token's \(name) is not \(what)") }
            return value
        }
        func required<Value>(
            _ name: String, _ what: String, _ read: (JSONValue) -> Value?
        ) throws(LogoutFailure) -> Value {
            guard let value = try optional(name, what, read) else { throw .invalid("the logout token has no \(name)") }
            return value
        }
        issuer = try required("iss", "a text", \.text)
        audiences = try required("aud", "a text or a list of texts") { $0.text.map { [$0] } ?? $0.texts }
        issuedAt = try required("iat", "a time in seconds", \.number)
        expires = try optional("exp", "a time in seconds", \.number)
        id = try required("jti", "a text", \.text)
        guard 1...Self.longestID ~= id.utf8.count else {
            throw .invalid("the logout token's jti has to have 1 to \(Self.longestID) bytes")
        }
        guard let event = try required("events", "an object", \.members)[Self.event] else {
            throw .invalid("the logout token's events lack that of a back-channel logout")
        }
        guard event.isObject else { throw .invalid("the logout token's event is no object") }
        // An ID token has one, and must not pass for a logout token.
        guard claims["nonce"] == nil else { throw .invalid("the logout token has a nonce") }
        subject = try optional("sub", "a text", \.text)
        session = try optional("sid", "a text", \.text)
        guard subject != nil || session != nil else { throw .invalid("the logout token has neither sub nor sid") }
    }
}

extension JSONValue {
    /// The strings of an array, or nil if an element is something else.
    var texts: [String]? {
        guard let elements else { return nil }
        let texts = elements.compactMap(\.text)
        return texts.count == elements.count ? texts : nil
    }
}
