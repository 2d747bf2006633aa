import LinuxSupport

/// The body of a request: `logout_token=…`, OpenID Connect Back-Channel Logout 1.0, section 2.5.
enum LogoutForm {
    private static let name = Array("logout_token".utf8)

    /// The token. Parameters of other names are ignored.
    static func token(_ body: some Sequence<UInt8>) throws(LogoutFailure) -> [UInt8] {
        var tokens: [[UInt8]] = []
        for pair in Array(body).split(separator: UInt8(ascii: "&")) {
            let end = pair.firstIndex(of: UInt8(ascii: "=")) ?? pair.endIndex
            guard let name = decode(pair[..<end]), let value = decode(pair[end...].dropFirst()) else {
                throw .invalid("invalid form: a % is not followed by two hexadecimal digits")
            }
            if name == Self.name { tokens.append(value) }
        }
        guard let token = tokens.first, !token.isEmpty else { throw .invalid("the form has no logout_token") }
        guard tokens.count == 1 else { throw .invalid("the form has more than one logout_token") }
        return token
    }

    /// https://url.spec.whatwg.org/#urlencoded-parsing
    private static func decode(_ text: ArraySlice<UInt8>) -> [UInt8]? {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(text.count)
        var rest = text
        while let byte = rest.popFirst() {
            switch byte {
            case UInt8(ascii: "+"): bytes.append(UInt8(ascii: " "))
            case UInt8(ascii: "%"):
                guard let high = rest.popFirst().flatMap(Hex.value(of:)),
                    let low = rest.popFirst().flatMap(Hex.value(of:))
                else { return nil }
                bytes.append(high << 4 | low)
            default: bytes.append(byte)
            }
        }
        return bytes
    }
}
