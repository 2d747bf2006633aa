/// Whether an answer may be kept, and for how long (RFC 9111 section 3 and 4.2, for a private cache).
struct StoringVerdict: Sendable, Equatable {
    let mayStore: Bool
    let freshness: Freshness

    /// - Parameter now: seconds since 1970, when the answer was received.
    init(_ headers: ResponseHeaders, origin: Origin, now: Int64) {
        let control = CacheControl(headers["cache-control"] ?? "")
        mayStore = !control.noStore
        let age = headers.fields["age"]?.first.flatMap { CacheControl.seconds($0) } ?? 0
        let lifetime: Int64
        if control.noCache {
            lifetime = 0
        } else if let maxAge = control.maxAge {
            lifetime = maxAge
        } else if let expires = headers.fields["expires"]?.first {
            // An invalid date, "0" above all, means already expired (RFC 9111 section 5.3).
            let date = headers.fields["date"]?.first.flatMap { HTTPDate.seconds($0) } ?? now
            lifetime = max(0, (HTTPDate.seconds(expires) ?? date) - date)
        } else {
            lifetime = origin.defaultTTL
        }
        // Neither no-cache nor must-revalidate lets a stale answer be used (RFC 9111 section 4.2.4).
        let mayBeStale = !control.mustRevalidate && !control.noCache
        freshness = Freshness(
            storedAt: now, initialAge: age, lifetime: lifetime,
            staleWhileRevalidate: mayBeStale ? origin.staleWhileRevalidate : 0,
            staleIfError: mayBeStale ? origin.staleIfError : 0)
    }
}

/// The response directives that are obeyed so far (RFC 9111 section 5.2.2).
struct CacheControl: Sendable, Equatable {
    private(set) var noStore = false
    private(set) var noCache = false
    private(set) var mustRevalidate = false
    /// Seconds; the smallest where it stands twice.
    private(set) var maxAge: Int64?

    init(_ value: String) {
        for directive in Self.split(value) {
            let parts = directive.split(separator: "=", maxSplits: 1)
            guard let name = parts.first.map({ Self.trim($0).lowercased() }) else { continue }
            let argument = parts.count == 2 ? Self.unquote(Self.trim(parts[1])) : nil
            switch name {
            case "no-store": noStore = true
            case "no-cache" where argument == nil: noCache = true
            case "must-revalidate": mustRevalidate = true
            case "max-age":
                // What cannot be read is taken for stale (section 4.2.1).
                let seconds = argument.flatMap { Self.seconds($0) } ?? 0
                maxAge = min(maxAge ?? seconds, seconds)
            default: break
            }
        }
    }

    /// A non-negative number of seconds; one too large to hold is taken for 2^31 (section 1.2.2). Nil for anything else.
    static func seconds(_ text: some StringProtocol) -> Int64? {
        let digits = trim(text)
        guard !digits.isEmpty, digits.utf8.allSatisfy({ (48...57).contains($0) }) else { return nil }
        return min(Int64(digits) ?? 1 << 31, 1 << 31)
    }

    /// Splits at commas outside quoted strings.
    private static func split(_ value: String) -> [Substring] {
        var isQuoted = false
        var isEscaped = false
        return value.split { character in
            if isEscaped {
                isEscaped = false
            } else if isQuoted && character == "\\" {
                isEscaped = true
            } else if character == "\"" {
                isQuoted.toggle()
            }
            return character == "," && !isQuoted
        }
    }

    private static func trim(_ text: some StringProtocol) -> String {
        let isBlank: (Character) -> Bool = { $0 == " " || $0 == "\t" }
        var rest = Substring(text).drop(while: isBlank)
        while let last = rest.last, isBlank(last) { rest.removeLast() }
        return String(rest)
    }

    private static func unquote(_ text: String) -> String {
        guard text.count >= 2, text.first == "\"", text.last == "\"" else { return text }
        return String(text.dropFirst().dropLast())
    }
}
