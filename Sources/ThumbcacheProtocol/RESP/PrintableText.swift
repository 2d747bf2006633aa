import LinuxSupport

/// Escapes untrusted bytes for an error message or log line. Printable ASCII is kept; quotes, backslashes and other
/// bytes become `\xNN`. Text of more than `limit` bytes is truncated and ends with `...`.
public func printableText(_ bytes: some Collection<UInt8>, limit: Int = 32) -> String {
    var text = ""
    for byte in bytes.prefix(limit) {
        switch byte {
        case UInt8(ascii: "'"), UInt8(ascii: "\\"), 0..<0x20, 0x7F...:
            text += "\\x\(Hex.text([byte]))"
        default:
            text.unicodeScalars.append(Unicode.Scalar(byte))
        }
    }
    return bytes.count > limit ? text + "..." : text
}

extension Unicode.Scalar {
    /// Whether a terminal displays the character itself, without side effects.
    public var isVisible: Bool {
        switch properties.generalCategory {
        case .control, .format, .lineSeparator, .paragraphSeparator, .privateUse, .surrogate, .unassigned: false
        default: true
        }
    }
}

/// Escapes text for quotes in JSON and logfmt. `hidden` escapes invisible characters.
public func escaped(_ text: some Sequence<Unicode.Scalar>, hidden: (Unicode.Scalar) -> String) -> String {
    text.reduce(into: "") { result, scalar in
        switch scalar {
        case "\"", "\\": result += "\\\(scalar)"
        case "\n": result += "\\n"
        case "\t": result += "\\t"
        case "\r": result += "\\r"
        case _ where scalar.isVisible: result.unicodeScalars.append(scalar)
        default: result += hidden(scalar)
        }
    }
}

/// Joins words as in `A, B or C`.
public func alternatives(_ words: [String]) -> String {
    (words.count > 1 ? words.dropLast().joined(separator: ", ") + " or " : "") + (words.last ?? "nothing")
}

/// Escapes untrusted text on one line; invisible characters become `\u{N}`.
public func oneLine(_ text: String) -> String {
    text.unicodeScalars.reduce(into: "") { result, scalar in
        if scalar.isVisible {
            result.unicodeScalars.append(scalar)
        } else {
            result += "\\u{\(String(scalar.value, radix: 16))}"
        }
    }
}
