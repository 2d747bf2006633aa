/// The supported signature algorithms, all asymmetric.
///
/// `none` and the HMACs are excluded: with an HMAC, the public key would serve as the secret (RFC 8725, section 2.1).
enum SignatureAlgorithm: String, CaseIterable, Sendable {
    case rs256 = "RS256"
    case rs384 = "RS384"
    case rs512 = "RS512"
    case ps256 = "PS256"
    case ps384 = "PS384"
    case ps512 = "PS512"
    case es256 = "ES256"
    case es384 = "ES384"
    case es512 = "ES512"
    case edDSA = "EdDSA"

    /// The type of key that the algorithm needs.
    var keyKind: KeyKind {
        switch self {
        case .rs256, .rs384, .rs512, .ps256, .ps384, .ps512: .rsa
        case .es256: .p256
        case .es384: .p384
        case .es512: .p521
        case .edDSA: .ed25519
        }
    }
}

/// The type of a key, from a JWK's `kty` and `crv`: RFC 7518, section 6, and RFC 8037.
enum KeyKind: Sendable {
    case rsa, p256, p384, p521, ed25519

    init?(type: String, curve: String?) {
        switch (type, curve) {
        case ("RSA", _): self = .rsa
        case ("EC", "P-256"): self = .p256
        case ("EC", "P-384"): self = .p384
        case ("EC", "P-521"): self = .p521
        case ("OKP", "Ed25519"): self = .ed25519
        default: return nil
        }
    }
}
