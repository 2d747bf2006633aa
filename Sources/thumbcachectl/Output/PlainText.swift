import LinuxSupport
import ThumbcacheProtocol

/// Text that came from elsewhere, made fit for a terminal: an id may hold anything, escape sequences among it.
enum PlainText {
    /// Bytes as text on one line. Control characters, invisible ones and bytes that are not UTF-8 appear as `\xNN`
    /// for each of their bytes, a backslash as `\\`: what is shown can be told from what it looks like.
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

    /// The first character and how many bytes it takes; nil where the bytes do not begin with one.
    private static func firstScalar(_ bytes: ArraySlice<UInt8>) -> (Unicode.Scalar, width: Int)? {
        var decoder = UTF8()
        var iterator = bytes.prefix(4).makeIterator()
        guard case .scalarValue(let scalar) = decoder.decode(&iterator) else { return nil }
        return (scalar, UTF8.width(scalar))
    }

    private static func hex(_ bytes: ArraySlice<UInt8>) -> String { bytes.map { "\\x" + Hex.text([$0]) }.joined() }
}
