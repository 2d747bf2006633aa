/// The signatures that a token may have: all are made with a private key, and checked with a public one.
///
/// What is not here cannot be configured. `none` is no signature; and with one of the HMACs (HS256 …) the public key,
/// which everybody has, would be the secret: RFC 8725, section 2.1.
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

    /// What its keys are, by a JWK's `kty` and `crv`.
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

/// What a key is: no key is used for an algorithm of another kind. RFC 7518, section 6, and RFC 8037.
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
