import LinuxSupport

/// Percent-decoding (RFC 3986, section 2.1).
enum PercentDecoding {
    /// Decodes each escape once.
    /// - Parameter plusIsSpace: as in the query of an HTML form; in a path a plus sign is itself.
    /// - Returns: nil if an escape is incomplete or not hexadecimal.
    static func decode(_ text: some Sequence<UInt8>, plusIsSpace: Bool = false) -> [UInt8]? {
        var decoded: [UInt8] = []
        var bytes = text.makeIterator()
        while let byte = bytes.next() {
            switch byte {
            case UInt8(ascii: "%"):
                guard let high = bytes.next().flatMap(Hex.value), let low = bytes.next().flatMap(Hex.value) else {
                    return nil
                }
                decoded.append(high << 4 | low)
            case UInt8(ascii: "+") where plusIsSpace: decoded.append(UInt8(ascii: " "))
            default: decoded.append(byte)
            }
        }
        return decoded
    }
}
