import FoundationEssentials

/// A token as it came, taken apart but not believed: RFC 7515, section 7.1.
struct CompactToken: Sendable {
    let header: TokenHeader
    let payload: [UInt8]
    let signature: [UInt8]
    /// What the signature is of.
    let signed: [UInt8]

    init(_ text: some Sequence<UInt8>) throws(LogoutFailure) {
        let parts = Array(text).split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard parts.count == 3 else {
            // Five are RFC 7516: nobody has agreed on encryption with us.
            throw .invalid(parts.count == 5 ? "the logout token is encrypted" : "the logout token is no signed JWT")
        }
        guard let header = base64URL(parts[0]), let payload = base64URL(parts[1]), let signature = base64URL(parts[2])
        else { throw .invalid("the logout token is not in base64url") }
        do {
            self.header = try JSONDecoder().decode(TokenHeader.self, from: Data(header))
        } catch {
            throw .invalid("the logout token's header is not as RFC 7515 has it")
        }
        (self.payload, self.signature) = (payload, signature)
        signed = Array(parts[0] + [UInt8(ascii: ".")] + parts[1])
    }
}

/// The members of a token's header that are looked at. What would bring a key along (`jwk`, `jku`, `x5u`, `x5c`) is not
/// among them: keys are the provider's, from where the configuration says.
struct TokenHeader: Decodable, Sendable {
    let algorithm: String
    let keyID: String?
    let type: String?
    /// Whether it asks for something that has to be understood. Nothing of the kind is.
    let isCritical: Bool

    private enum Key: String, CodingKey {
        case alg, kid, typ, crit
    }

    init(from decoder: any Decoder) throws {
        let members = try decoder.container(keyedBy: Key.self)
        algorithm = try members.decode(String.self, forKey: .alg)
        keyID = members.contains(.kid) ? try members.decode(String.self, forKey: .kid) : nil
        type = members.contains(.typ) ? try members.decode(String.self, forKey: .typ) : nil
        isCritical = members.contains(.crit)
    }
}

/// RFC 7515, section 2: without padding, and without anything else than the alphabet.
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
