import LinuxSupport
import ThumbcacheProtocol

extension Quantity {
    /// All units for an error message, smallest first.
    public var unitNames: String { alternatives(units.reversed().map(\.suffix)) }
}

/// Returns a key as TOML: bare if possible, otherwise in quotes.
public func keyText(_ key: String) -> String { !key.isEmpty && key.utf8.allSatisfy(isWordByte) ? key : quoted(key) }

public func isWordByte(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"):
        true
    default: false
    }
}

/// Returns a value in quotes for a message, on one line and truncated to 64 characters.
public func quoted(_ text: String) -> String {
    let escaped = text.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"")
    return "\"\(oneLine(String(escaped.unicodeScalars.prefix(64))))\(escaped.unicodeScalars.count > 64 ? "…" : "")\""
}
