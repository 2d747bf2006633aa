/// How old an answer is when it arrives (RFC 9111 section 4.2.3). Everything in seconds.
struct AgeCalculation: Sendable, Equatable {
    /// What Age says; nil without one, or with one that is none.
    var age: Int64?
    /// What Date says, since 1970; nil without one, or with one that is none: then the moment of its arrival counts
    /// (RFC 9110 section 6.6.1).
    var date: Int64?
    /// When the answer arrived, since 1970.
    var receivedAt: Int64
    /// From the request to the answer: as long as the answer may have been under way.
    var delay: Int64

    /// What the two clocks may differ by at most for their difference to be an age.
    static let mostApparent: Int64 = 86_400

    /// The age by the two clocks, which may be wrong against each other: an answer from the future is new, and one that seems more
    /// than a day old without having been told so by Age says that this machine's clock is wrong (F14). Were that believed, nothing
    /// would ever be fresh. The RFC asks for this age only where caches so old that they know no Age may be on the way.
    var apparentAge: Int64 {
        let difference = receivedAt - (date ?? receivedAt)
        return (0...Self.mostApparent).contains(difference) ? difference : 0
    }
    var correctedAge: Int64 { (age ?? 0) + delay }
    var initialAge: Int64 { max(apparentAge, correctedAge) }

    /// The value of Age (section 5.1): the first of a list counts, and one that is no number of seconds is as good as none.
    /// - Parameter lines: the values of the field in the order they came.
    static func ageValue(_ lines: [String]) -> Int64? {
        guard let first = lines.first else { return nil }
        var scanner = FieldScanner(first)
        scanner.skipBlanks()
        let value = scanner.token()
        scanner.skipBlanks()
        return scanner.isAtEndOfElement ? value.flatMap { DeltaSeconds.parse($0) } : nil
    }
}
