/// Which requests an answer is for (RFC 9111 section 4.1).
///
/// All requests of thumbcached for one URL have the same header fields but for Authorization, and that stands in each of them
/// for the one user to whom the cache belongs. So whatever fields an answer varies by, it is for the next request as well; only
/// `*`, which varies by what no request shows, matches none.
enum Vary {
    /// - Parameter value: all lines of the field as one list; nil without one.
    static func matchesNothing(_ value: String?) -> Bool {
        guard let value else { return false }
        var scanner = FieldScanner(value)
        while !scanner.isAtEnd {
            scanner.skipBlanks()
            // A star is a character of tokens, too.
            if scanner.token() == "*" { return true }
            scanner.skipElement()
            _ = scanner.take(",")
        }
        return false
    }
}
