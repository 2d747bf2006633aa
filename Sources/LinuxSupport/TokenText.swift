/// The syntax of OAuth tokens.
public enum TokenText {
    /// `b64token` of RFC 6750, section 2.1. Contains no character that could end a header line.
    public static func isBearer(_ bytes: some Collection<UInt8>) -> Bool {
        guard let first = bytes.first, first != UInt8(ascii: "=") else { return false }
        return bytes.drop(while: isBearerCharacter).allSatisfy { $0 == UInt8(ascii: "=") }
    }

    /// `1*VSCHAR` of RFC 6749, appendix A. Such tokens are sent encoded only.
    public static func isVisible(_ bytes: some Collection<UInt8>) -> Bool {
        !bytes.isEmpty && bytes.allSatisfy { 0x20...0x7E ~= $0 }
    }

    private static func isBearerCharacter(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"),
            UInt8(ascii: "~"), UInt8(ascii: "+"), UInt8(ascii: "/"):
            true
        default:
            false
        }
    }
}
