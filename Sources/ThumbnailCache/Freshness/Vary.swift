/// Which requests an answer is for (RFC 9111 section 4.1).
///
/// All requests of thumbcached for one URL have the same header fields but for Authorization. So whatever other fields an answer varies
/// by, it is for the next request as well; `*`, which varies by what no request shows, matches none. What varies by Authorization is
/// for the tokens of one family: see ``LoginTokens/family``.
struct Vary: Sendable, Equatable {
    private(set) var matchesNothing = false
    private(set) var namesAuthorization = false

    /// - Parameter value: all lines of the field as one list; nil without one.
    init(_ value: String?) {
        guard let value else { return }
        var scanner = FieldScanner(value)
        while !scanner.isAtEnd {
            scanner.skipBlanks()
            // A star is a character of tokens, too.
            switch scanner.token() {
            case "*": matchesNothing = true
            case "authorization": namesAuthorization = true
            default: break
            }
            scanner.skipElement()
            _ = scanner.take(",")
        }
    }
}
