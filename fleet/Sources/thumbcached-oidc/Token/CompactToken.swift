import FoundationEssentials
import JSONReader

/// A compact JWS, decoded but not verified: RFC 7515, section 7.1.
struct CompactToken: Sendable {
    let header: TokenHeader
    let payload: [UInt8]
    let signature: [UInt8]
    /// The bytes that the signature covers.
    let signed: [UInt8]

    init(_ text: some Sequence<UInt8>) throws(LogoutFailure) {
        let parts = Array(text).split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard parts.count == 3 else {
            // Five parts are an encrypted token (RFC 7516), which is not supported.
            throw .invalid(parts.count == 5 ? "the logout token is encrypted" : "the logout token is not a signed JWT")
        }
        guard let header = base64URL(parts[0]), let payload = base64URL(parts[1]), let signature = base64URL(parts[2])
        else { throw .invalid("the logout token is not valid base64url") }
        guard let header = JSONValue(header)?.members.flatMap(TokenHeader.init) else {
            throw .invalid("the logout token's header is invalid (RFC 7515)")
        }
        (self.header, self.payload, self.signature) = (header, payload, signature)
        signed = Array(parts[0] + [UInt8(ascii: ".")] + parts[1])
    }
}

/// The header parameters that are used.
///
/// Parameters that carry or name a key (`jwk`, `jku`, `x5u`, `x5c`) are not among them: keys come only from the
/// configured JWKS endpoint.
struct TokenHeader: Sendable {
    let algorithm: String
    let keyID: String?
    let type: String?
    /// Whether the header has a `crit` parameter. No extension is supported.
    let isCritical: Bool

    /// Returns nil without `alg`, and if `alg`, `kid` or `typ` is not a string.
    init?(_ members: [String: JSONValue]) {
        guard let algorithm = members["alg"]?.text else { return nil }
        (self.algorithm, keyID, type) = (algorithm, members["kid"]?.text, members["typ"]?.text)
        isCritical = members["crit"] != nil
        guard (keyID != nil) == (members["kid"] != nil), (type != nil) == (members["typ"] != nil) else { return nil }
    }
}

/// RFC 7515, section 2: base64url without padding. Other characters are an error.
private func base64URL(_ text: ArraySlice<UInt8>) -> [UInt8]? {
    var standard: [UInt8] = []
    standard.reserveCapacity(text.count + 3)
    for byte in text {
        switch byte {
        case UInt8(ascii: "-"): standard.append(UInt8(ascii: "+"))
        case UInt8(ascii: "_"): standard.append(UInt8(ascii: "/"))
        case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"):
            standard.append(byte)
        default: return nil
        }
    }
    while !standard.count.isMultiple(of: 4) { standard.append(UInt8(ascii: "=")) }
    return Data(base64Encoded: Data(standard)).map { Array($0) }
}
