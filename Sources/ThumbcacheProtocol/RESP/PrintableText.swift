import LinuxSupport

/// Bytes that a peer sent, fit to stand in an error message or a log line: printable ASCII as it is, anything else as
/// `\xNN`, quotes and backslashes too, and `...` where it was cut.
///
/// - Parameter limit: bytes shown at most.
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
    /// Whether it shows as itself on a terminal, and moves nothing around it.
    public var isVisible: Bool {
        switch properties.generalCategory {
        case .control, .format, .lineSeparator, .paragraphSeparator, .privateUse, .surrogate, .unassigned: false
        default: true
        }
    }
}

/// Text as it stands between quotes in JSON and logfmt, with `hidden` for each character that does not show.
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

/// `A, B or C`.
public func alternatives(_ words: [String]) -> String {
    (words.count > 1 ? words.dropLast().joined(separator: ", ") + " or " : "") + (words.last ?? "nothing")
}

/// Text of somebody else's, with control characters shown as numbers: it neither ends the line nor moves the cursor.
public func oneLine(_ text: String) -> String {
    text.unicodeScalars.reduce(into: "") { result, scalar in
        if scalar.isVisible {
            result.unicodeScalars.append(scalar)
        } else {
            result += "\\u{\(String(scalar.value, radix: 16))}"
        }
    }
}
