/// The response directives of Cache-Control that concern a private cache (RFC 9111 section 5.2.2, RFC 5861).
///
/// Ignored are directives for shared caches (`s-maxage`, `proxy-revalidate`, `private`), those without an effect here
/// (`public`, `immutable` of RFC 8246, `no-transform`), and unknown ones.
struct CacheControl: Sendable, Equatable {
    private(set) var noStore = false
    private(set) var noCache = false
    private(set) var mustRevalidate = false
    private(set) var mustUnderstand = false
    /// Seconds; 0 for an invalid value, which counts as stale (section 4.2.1).
    private(set) var maxAge: Int64?
    /// Seconds; nil if the directive is missing or invalid.
    private(set) var staleWhileRevalidate: Int64?
    private(set) var staleIfError: Int64?

    /// - Parameter value: all lines of the header field as one list.
    init(_ value: String) {
        var scanner = FieldScanner(value)
        while !scanner.isAtEnd {
            scanner.skipBlanks()
            if let name = scanner.token() {
                apply(name, Self.argument(&scanner))
            } else {
                scanner.skipElement()
            }
            scanner.skip(",")
        }
    }

    /// A directive's argument, as a token or a quoted string (section 5.2); nil if missing or malformed.
    private static func argument(_ scanner: inout FieldScanner) -> String? {
        let argument = scanner.skip("=") ? scanner.quotedString() ?? scanner.token() : nil
        scanner.skipBlanks()
        if scanner.isAtEndOfElement { return argument }
        scanner.skipElement()
        return nil
    }

    /// Applies a directive. A prohibition applies whatever its argument; of repeated numbers, the first counts.
    private mutating func apply(_ name: String, _ argument: String?) {
        let seconds = argument.flatMap(DeltaSeconds.parse)
        switch name {
        case "no-store": noStore = true
        case "no-cache": if !Self.namesFields(argument) { noCache = true }
        case "must-revalidate": mustRevalidate = true
        case "must-understand": mustUnderstand = true
        case "max-age": maxAge = maxAge ?? seconds ?? 0
        case "stale-while-revalidate": staleWhileRevalidate = staleWhileRevalidate ?? seconds
        case "stale-if-error": staleIfError = staleIfError ?? seconds
        default: break
        }
    }

    /// Whether the argument of `no-cache` names header fields, which must not be reused (section 5.2.2.4). Clients get
    /// no header fields, so that form has no effect.
    private static func namesFields(_ argument: String?) -> Bool {
        var scanner = FieldScanner(argument ?? "")
        scanner.skipBlanks()
        return scanner.token() != nil
    }
}
