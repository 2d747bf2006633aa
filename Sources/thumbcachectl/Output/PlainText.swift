import LinuxSupport
import ThumbcacheProtocol

/// Escapes untrusted text, such as an id with terminal escape sequences, for a terminal.
enum PlainText {
    /// Returns bytes as text on one line. A backslash becomes `\\`. Each byte of control characters, invisible
    /// characters and invalid UTF-8 becomes `\xNN`. Different bytes give different text.
    static func escape(_ bytes: some Collection<UInt8>) -> String {
        var text = ""
        var rest = Array(bytes)[...]
        while !rest.isEmpty {
            guard let (scalar, width) = firstScalar(rest) else {
                text += hex(rest.prefix(1))
                rest = rest.dropFirst()
                continue
            }
            if scalar == "\\" {
                text += "\\\\"
            } else if scalar.isVisible {
                text.unicodeScalars.append(scalar)
            } else {
                text += hex(rest.prefix(width))
            }
            rest = rest.dropFirst(width)
        }
        return text
    }

    static func escape(_ text: String) -> String { escape(text.utf8) }

    /// The first character and its length in bytes; nil if the bytes do not begin with valid UTF-8.
    private static func firstScalar(_ bytes: ArraySlice<UInt8>) -> (Unicode.Scalar, width: Int)? {
        var decoder = UTF8()
        var iterator = bytes.prefix(4).makeIterator()
        guard case .scalarValue(let scalar) = decoder.decode(&iterator) else { return nil }
        return (scalar, UTF8.width(scalar))
    }

    private static func hex(_ bytes: ArraySlice<UInt8>) -> String { bytes.map { "\\x" + Hex.text([$0]) }.joined() }
}
