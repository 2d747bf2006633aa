import Glibc
import ThumbnailCache

extension Configuration {
    /// An origin while it is read.
    struct OriginDraft: Equatable, Sendable {
        var origin: Origin
        var token = TokenDraft()
    }

    /// The token endpoint of an origin while it is read.
    struct TokenDraft: Equatable, Sendable {
        var endpoint = ""
        var clientID = ""
        /// Absolute path. Read with the configuration, at the start and at each reload.
        var clientSecretFile = ""
    }

    /// Every key of an `[origins.NAME]`.
    static let originSettings: [Setting<OriginDraft>] = [
        Setting("url", \.origin.url, .webURL),
        Setting("default-size", \.origin.defaultSize, pixels),
        Setting("allow", \.origin.allow, .list(of: .webURL, such: "[\"https://cdn.example.org/avatars/\"]")),
        Setting("allow-private-addresses", \.origin.allowPrivateAddresses, .flag),
        Setting("connect-timeout", \.origin.connectTimeout, .milliseconds(atLeast: 1, atMost: 3_600_000)),
        Setting("timeout", \.origin.timeout, .milliseconds(atLeast: 1, atMost: 3_600_000)),
        Setting("connections", \.origin.connections, .count(1...10_000)),
        Setting("lowest-speed", \.origin.lowestSpeed, .size(atLeast: 1, atMost: 1 << 30, zero: true)),
        Setting("failures", \.origin.breaker.failures, .count(1...1_000_000)),
        Setting("backoff", \.origin.breaker.backoff, .milliseconds(atLeast: 1, atMost: 86_400_000)),
        Setting("backoff-max", \.origin.breaker.backoffMax, .milliseconds(atLeast: 1, atMost: 86_400_000)),
        Setting("retry-after-max", \.origin.breaker.retryAfterMax, .milliseconds(atLeast: 0, atMost: 86_400_000)),
        Setting("default-ttl", \.origin.defaultTTL, .seconds),
        Setting("negative-ttl", \.origin.negativeTTL, .seconds),
        Setting("stale-while-revalidate", \.origin.staleWhileRevalidate, .seconds),
        Setting("stale-if-error", \.origin.staleIfError, .seconds),
        Setting("ca-file", \.origin.caFile, fileOrNone),
        Setting("proxy", \.origin.proxy, proxy),
        Setting("token.endpoint", \.token.endpoint, .webURL),
        Setting("token.client-id", \.token.clientID, SettingKind.text.checked { $0.isEmpty ? "is empty" : nil }),
        Setting("token.client-secret-file", \.token.clientSecretFile, .path),
    ]

    /// Reads `[origins]`.
    mutating func readOrigins(_ node: TOMLNode, _ validate: (Origin) throws -> Void) -> [ConfigurationError.Problem] {
        guard case .table(let table) = node else {
            let sentence = "is \(node.typeName), but each origin is a section of its own: write [origins.default]"
            return [.init(key: "origins", sentence: sentence)]
        }
        var problems: [ConfigurationError.Problem] = []
        for (name, node) in table.sorted(by: { $0.key < $1.key }) {
            problems += readOrigin(name, node, validate)
        }
        return problems
    }

    private mutating func readOrigin(
        _ name: String, _ node: TOMLNode, _ validate: (Origin) throws -> Void
    ) -> [ConfigurationError.Problem] {
        let key = "origins.\(keyText(name))"
        guard case .table(let table) = node else {
            let sentence = "is \(node.typeName), but each origin is a section of its own: write [origins.default]"
            return [.init(key: key, sentence: sentence)]
        }
        guard (1...64).contains(name.utf8.count), name.utf8.allSatisfy(isWordByte) else {
            let sentence = "the name of an origin has 1 to 64 letters, digits, - and _"
            return [.init(key: key, sentence: sentence)]
        }
        var draft = OriginDraft(origin: Origin(name: name, url: ""))
        var reader = SettingReader(Self.originSettings, prefix: key + ".")
        reader.read(table, into: &draft)
        var problems = reader.problems

        if !reader.found.contains("url") {
            let example = "\"https://avatars.example.org/{profile}?s={size}\""
            problems.append(
                .init(key: key + ".url", sentence: "is missing; write a URL, as in \(example)"))
        }
        problems += readTokenEndpoint(key, reader.found, &draft)
        problems += Self.settleBackoff(&draft.origin.breaker, found: reader.found, key)
        guard problems.isEmpty else { return problems }
        do {
            try validate(draft.origin)
        } catch {
            return [.init(key: key, sentence: "\(error)")]
        }
        origins[name] = draft.origin
        return []
    }

    private func readTokenEndpoint(
        _ key: String, _ found: Set<String>, _ draft: inout OriginDraft
    ) -> [ConfigurationError.Problem] {
        guard found.contains("token") else { return [] }
        let missing = ["token.endpoint", "token.client-id"].filter { !found.contains($0) }
        guard missing.isEmpty else {
            let sentence =
                "is missing; a token endpoint has endpoint and client-id, and client-secret-file if the client has a secret"
            return missing.map { .init(key: "\(key).\($0)", sentence: sentence) }
        }
        var endpoint = TokenEndpoint(url: draft.token.endpoint, clientID: draft.token.clientID)
        if !draft.token.clientSecretFile.isEmpty {
            let name = "token.client-secret-file"
            do throws(SettingError) {
                endpoint.clientSecret = try SecretFile.read(draft.token.clientSecretFile)
            } catch {
                return [.init(key: "\(key).\(name)", sentence: error.sentence)]
            }
        }
        draft.origin.tokenEndpoint = endpoint
        return []
    }

    /// `backoff` cannot be more than `backoff-max`. A default gives way to what is set, as with all keys like that.
    private static func settleBackoff(
        _ policy: inout BreakerPolicy, found: Set<String>, _ key: String
    ) -> [ConfigurationError.Problem] {
        let (first, most) = (policy.backoff, policy.backoffMax)
        guard first > most else { return [] }
        guard found.contains("backoff") else {
            policy.backoff = most
            return []
        }
        guard found.contains("backoff-max") else {
            policy.backoffMax = first
            return []
        }
        let sentence =
            "\(TimeSpan.format(Int(first))) is more than \(key).backoff-max (\(TimeSpan.format(Int(most)))): "
            + "lower the one or raise the other"
        return [.init(key: "\(key).backoff", sentence: sentence)]
    }

    private static var pixels: SettingKind<UInt16> {
        SettingKind<Int>.count(1...4096).map { value throws(SettingError) in UInt16(value) }
    }

    private static var fileOrNone: SettingKind<String> {
        SettingKind<String>.text.checked { path in
            if path.isEmpty { return nil }
            guard path.hasPrefix("/") else {
                return "\(quoted(path)) is not an absolute path: it must begin with /; \"\" is for none"
            }
            return unreadable(path)
        }
    }

    /// Not repeated in messages: a proxy's URL may hold a password.
    private static var proxy: SettingKind<String> {
        SettingKind<String>.text.checked { url in
            // Not socks4 and socks5: libcurl would resolve names here, and hand the proxy an address that nobody has
            // judged.
            let schemes = ["http://", "https://", "socks4a://", "socks5h://"]
            let isPlain = url.utf8.allSatisfy { $0 > 0x20 && $0 != 0x7F }
            return url.isEmpty
                || isPlain && schemes.contains { url.hasPrefix($0) && url.utf8.count > $0.utf8.count }
                ? nil
                : "is not the URL of a proxy: it begins with http://, https://, socks5h:// (not socks5://) or socks4a:// (not socks4://), "
                    + "since the proxy is to resolve names itself; \"\" is for none"
        }
    }

    private static let unreadable: @Sendable (String) -> String? = { path in
        Glibc.access(path, R_OK) == 0 ? nil : "\(quoted(path)) cannot be read: \(String(cString: strerror(errno)))"
    }
}
