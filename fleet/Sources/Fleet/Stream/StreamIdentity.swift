import LinuxSupport

/// A stream's name: which of its lives it is in, and since when. 32 hexadecimal digits: milliseconds since 1970 by the
/// server's clock, and as many random ones.
///
/// A relay that has read what the stream no longer has gives it a new name. By that every other relay learns that it may
/// have missed something, also one that was away and stands at an entry that is still there. Whoever follows a name has
/// made up for all that was published before that name was given, and for nothing later: a relay that knows a later name,
/// or has read a later entry, finds a stream that came back from before, and gives it a name that is later still.
package enum StreamIdentity {
    private static let digits = 16
    /// The last moment that a name may have; a server's clock cannot show a later one.
    private static let lastMoment = UInt64(Int64.max)

    /// Whether the text has the form of a name that relays write.
    package static func isOne(_ text: some StringProtocol) -> Bool {
        text.utf8.count == 2 * digits && Array(text.utf8).withUnsafeBytes { Hex.isLowerCase($0) }
            && start(text) <= lastMoment
    }

    /// When it was given, or a little later where clocks are not of one mind.
    package static func start(_ name: some StringProtocol) -> UInt64 { UInt64(name.prefix(digits), radix: 16) ?? .max }

    /// A name that is given now, and in any case after a moment. Relays accept every name that is made here.
    /// - Parameter random: at least eight bytes.
    package static func name(after moment: UInt64, now: Int64, random: [UInt8]) -> String {
        let start = min(max(moment.saturatingAdd(1), UInt64(max(0, now))), lastMoment)
        let text = String(start, radix: 16)
        return String(repeating: "0", count: digits - text.count) + text + Hex.text(random).prefix(digits)
    }
}
