/// The response directives of Cache-Control that concern a private cache (RFC 9111 section 5.2.2, RFC 5861).
///
/// Not read, because they bind shared caches only: `s-maxage`, `proxy-revalidate` and `private`, in either form. Not
/// read, because they change nothing here: `public` (it makes storable what a shared cache, or a cache of other
/// statuses, might not store), `immutable` (RFC 8246: a fresh image is never revalidated anyway), `no-transform`, and
/// what nobody knows.
struct CacheControl: Sendable, Equatable {
    private(set) var noStore = false
    private(set) var noCache = false
    private(set) var mustRevalidate = false
    private(set) var mustUnderstand = false
    /// Seconds. Zero for a value that is none: what cannot be read is taken for stale (section 4.2.1).
    private(set) var maxAge: Int64?
    /// Seconds; nil where the directive is missing or unreadable, since it is a permission and none was given.
    private(set) var staleWhileRevalidate: Int64?
    private(set) var staleIfError: Int64?

    /// - Parameter value: all lines of the field as one list.
    init(_ value: String) {
        var scanner = FieldScanner(value)
        while !scanner.isAtEnd {
            scanner.skipBlanks()
            if let name = scanner.token() {
                obey(name, Self.argument(&scanner))
            } else {
                scanner.skipElement()
            }
            _ = scanner.take(",")
        }
    }

    /// A directive's argument, a token or a quoted string: recipients ought to take both (section 5.2). Nil without
    /// one, and for what the grammar does not know.
    private static func argument(_ scanner: inout FieldScanner) -> String? {
        let argument = scanner.take("=") ? scanner.quotedString() ?? scanner.token() : nil
        scanner.skipBlanks()
        if scanner.isAtEndOfElement { return argument }
        scanner.skipElement()
        return nil
    }

    /// A directive that forbids something is obeyed whatever its argument. Of one that stands more than once with a
    /// number, the first counts (section 4.2.1).
    private mutating func obey(_ name: String, _ argument: String?) {
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

    /// `no-cache` with field names forbids to reuse those fields (section 5.2.2.4). No field is ever handed on here,
    /// only the image, so that form forbids nothing.
    private static func namesFields(_ argument: String?) -> Bool {
        var scanner = FieldScanner(argument ?? "")
        scanner.skipBlanks()
        return scanner.token() != nil
    }
}
