import LinuxSupport
import ThumbcacheProtocol

extension Quantity {
    /// All units for an error message, the smallest first.
    public var unitNames: String { alternatives(units.reversed().map(\.suffix)) }
}

// MARK: Text in messages

/// A key as TOML writes it: bare where it can be, else in quotes.
public func keyText(_ key: String) -> String { !key.isEmpty && key.utf8.allSatisfy(isWordByte) ? key : quoted(key) }

/// Letters, digits, `-` and `_`.
public func isWordByte(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"):
        true
    default: false
    }
}

/// A value in quotes for a message: on one line, and cut where it is long.
public func quoted(_ text: String) -> String {
    let escaped = text.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"")
    return "\"\(oneLine(String(escaped.unicodeScalars.prefix(64))))\(escaped.unicodeScalars.count > 64 ? "…" : "")\""
}
