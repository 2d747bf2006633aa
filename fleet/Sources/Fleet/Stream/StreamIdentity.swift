import LinuxSupport

/// The identity of a stream: 32 hexadecimal digits, 16 for its creation time in milliseconds since 1970, 16 random.
///
/// A relay that finds an entry missing that it has read sets a new identity. Every relay treats a changed identity as a
/// gap, even if the entry at its own position still exists. A relay that knows a later identity, or has read a later
/// entry, detects a restored stream and sets an identity later than both.
package enum StreamIdentity {
    private static let digits = 16
    /// The latest creation time; a server's clock cannot show a later one.
    private static let lastMoment = UInt64(Int64.max)

    /// Whether the text is a valid identity.
    package static func isOne(_ text: some StringProtocol) -> Bool {
        text.utf8.count == 2 * digits && Array(text.utf8).withUnsafeBytes { Hex.isLowerCase($0) }
            && start(text) <= lastMoment
    }

    /// The creation time, or slightly later if clocks differ.
    package static func start(_ name: some StringProtocol) -> UInt64 { UInt64(name.prefix(digits), radix: 16) ?? .max }

    /// Creates an identity with the time `now`, but later than `moment`.
    /// - Parameter random: at least eight bytes.
    package static func name(after moment: UInt64, now: Int64, random: [UInt8]) -> String {
        let start = min(max(moment.saturatingAdd(1), UInt64(max(0, now))), lastMoment)
        let text = String(start, radix: 16)
        return String(repeating: "0", count: digits - text.count) + text + Hex.text(random).prefix(digits)
    }
}
