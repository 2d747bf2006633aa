import CacheCore
import Glibc
import LinuxSupport
import NIOCore
import Origins
import ProgramSupport
import ThumbcacheProtocol

extension Configuration {
    /// An origin while it is read.
    struct OriginDraft {
        var origin: Origin
        var token = TokenEndpoint(url: "", clientID: "")
        /// Path of a picture; empty for none.
        var fallback = ""
    }

    /// Every key of an `[origins.NAME]`. A file with a secret is read whenever the configuration is.
    static let originSettings: [Setting<OriginDraft>] = [
        Setting("url", \.origin.url, .webURL),
        Setting("show-token", \.origin.showsToken, .flag),
        Setting("federation", \.origin.federation, .word),
        Setting("then", \.origin.then, .list(of: link, such: "[{ url = \"https://b.example.org/{profile}\" }]")),
        Setting("fallback", \.fallback, .path(orNone: true)),
        Setting("default-size", \.origin.defaultSize, .count(1...4096)),
        Setting("renditions", \.origin.renditions, .word),
        Setting("allow", \.origin.allow, .list(of: .webURL, such: "[\"https://cdn.example.org/avatars/\"]")),
        Setting("allow-private-addresses", \.origin.allowPrivateAddresses, .flag),
        Setting("connect-timeout", \.origin.connectTimeout, .time(1...3_600_000)),
        Setting("timeout", \.origin.timeout, .time(1...3_600_000)),
        Setting("connections", \.origin.connections, .count(1...10_000)),
        Setting("lowest-speed", \.origin.lowestSpeed, .size(1...1 << 30, zero: true)),
        Setting("failures", \.origin.breaker.failures, .count(1...1_000_000)),
        Setting("backoff", \.origin.breaker.backoff, .time(1...86_400_000), [.atMost("backoff-max", raisingIt: true)]),
        Setting("backoff-max", \.origin.breaker.backoffMax, .time(1...86_400_000)),
        Setting("retry-after-max", \.origin.breaker.retryAfterMax, .time(0...86_400_000)),
        Setting("default-ttl", \.origin.defaultTTL, .seconds),
        Setting("negative-ttl", \.origin.negativeTTL, .seconds, [.atMost("negative-ttl-max", raisingIt: true)]),
        Setting("negative-ttl-max", \.origin.negativeTTLMax, .seconds),
        Setting("stale-while-revalidate", \.origin.staleWhileRevalidate, .seconds),
        Setting("stale-if-error", \.origin.staleIfError, .seconds),
        Setting("ca-file", \.origin.caFile, caFile),
        Setting("proxy", \.origin.proxy, proxy),
        Setting("user-agent", \.origin.userAgent, userAgent),
        Setting("token.endpoint", \.token.url, .webURL),
        Setting("token.client-id", \.token.clientID, SettingParser.text.checked { $0.isEmpty ? "is empty" : nil }),
        Setting("token.client-secret-file", \.token.clientSecret, .secretFile),
    ]

    /// Reads `[origins]`.
    mutating func readOrigins(_ node: TOMLNode) -> [ConfigurationError.Problem] {
        guard case .table(let table) = node else { return [Self.noSection("origins", node)] }
        var problems: [ConfigurationError.Problem] = []
        for (name, node) in table.sorted(by: { $0.key < $1.key }) { problems += readOrigin(name, node) }
        return problems
    }

    private static func noSection(_ key: String, _ node: TOMLNode) -> ConfigurationError.Problem {
        let sentence = "is \(node.typeName), but each origin is a section of its own: write [origins.default]"
        return .init(key: key, sentence: sentence)
    }

    private mutating func readOrigin(_ name: String, _ node: TOMLNode) -> [ConfigurationError.Problem] {
        let key = "origins.\(keyText(name))"
        guard case .table(let table) = node else { return [Self.noSection(key, node)] }
        guard (1...64).contains(name.utf8.count), name.utf8.allSatisfy(isWordByte) else {
            return [.init(key: key, sentence: "the name of an origin has 1 to 64 letters, digits, - and _")]
        }
        var draft = OriginDraft(origin: Origin(name: name, url: ""))
        var reader = SettingReader(settings: Self.originSettings, prefix: key + ".")
        reader.read(table, into: &draft)
        if !reader.found.contains("url") {
            reader.complain("url", "is missing; write a URL, as in \"https://avatars.example.org/{profile}?s={size}\"")
        }
        if reader.found.contains("token") {
            for missing in ["token.endpoint", "token.client-id"] where !reader.found.contains(missing) {
                reader.complain(
                    missing,
                    "is missing; a token endpoint has endpoint and client-id, and client-secret-file if the "
                        + "client has a secret"
                )
            }
            draft.origin.tokenEndpoint = draft.token
        }
        reader.reconcile(&draft)
        cautions += reader.warnings
        guard reader.problems.isEmpty else { return reader.problems }
        do throws(OriginError) {
            try OriginRules.validate(draft.origin)
        } catch {
            return [.init(key: "\(key).\(error.key)", sentence: oneLine(error.reason))]
        }
        origins[name] = draft.origin
        fallbackFiles[name] = draft.fallback.isEmpty ? nil : draft.fallback
        return []
    }

    /// Reads the origins' pictures, when the limits are known that they have to keep.
    mutating func readFallbacks() -> [ConfigurationError.Problem] {
        fallbackFiles.sorted { $0.key < $1.key }.compactMap { name, path in
            do {
                let bytes = try readPlainFile(path, limit: limits.image)
                origins[name]?.fallback = try FallbackPicture(
                    ByteBuffer(bytes: bytes), maximumDimension: limits.dimension)
                return nil
            } catch let refusal as ImageRefusal {
                return .init(
                    key: "origins.\(name).fallback", sentence: "\(quoted(path)) is no such picture: \(refusal.reason)")
            } catch {
                return .init(key: "origins.\(name).fallback", sentence: "\(quoted(path)) \(error)")
            }
        }
    }

    /// Every key of an `[[origins.NAME.then]]`.
    static let linkSettings: [Setting<Upstream>] = [
        Setting("url", \.url, .webURL),
        Setting("allow-private-addresses", \.allowPrivateAddresses, .flag),
        Setting("show-token", \.showsToken, .flag),
        Setting("federation", \.federation, .word),
    ]

    private static var link: SettingParser<Upstream> {
        SettingParser { node throws(SettingError) in
            guard case .table(let table) = node else {
                throw SettingError("is \(node.typeName); write { url = \"https://avatars.example.org/{profile}\" }")
            }
            var link = Upstream(url: "")
            var reader = SettingReader(settings: linkSettings)
            reader.read(table, into: &link)
            if !reader.found.contains("url") {
                reader.complain("url", "is missing; write a URL, as in \"https://avatars.example.org/{profile}\"")
            }
            let flaws = reader.problems.map { problem in
                SettingError.Flaw(problem.sentence, keySuffix: problem.key.map { ".\($0)" } ?? "")
            }
            guard flaws.isEmpty else { throw SettingError(flaws) }
            return link
        }
    }

    /// A line end in it would begin another header field.
    private static var userAgent: SettingParser<String> {
        SettingParser<String>.text.checked { text in
            text.utf8.count <= 256 && text.utf8.allSatisfy { (0x20...0x7E).contains($0) } && text.utf8.first != 0x20
                && text.utf8.last != 0x20
                ? nil
                : "is not a User-Agent; write at most 256 printable ASCII characters without blanks at either end, as in "
                    + "\"thumbcached (avatars@example.org)\""
        }
    }

    private static var caFile: SettingParser<String> {
        SettingParser.path(orNone: true).checked { path in
            path.isEmpty || Glibc.access(path, R_OK) == 0
                ? nil : "\(quoted(path)) cannot be read: \(SystemError("access").reason)"
        }
    }

    /// Not repeated in messages: a proxy's URL may hold a password.
    private static var proxy: SettingParser<String> {
        SettingParser<String>.text.checked { url in
            // With socks4 and socks5 libcurl resolves names itself, and hands over an address that nobody has judged.
            let schemes = ["http://", "https://", "socks4a://", "socks5h://"]
            let isPlain = url.utf8.allSatisfy { $0 > 0x20 && $0 != 0x7F }
            return url.isEmpty || isPlain && schemes.contains { url.hasPrefix($0) && url.utf8.count > $0.utf8.count }
                ? nil
                : "is not the URL of a proxy: it begins with http://, https://, socks5h:// (not socks5://) or "
                    + "socks4a:// (not socks4://), since the proxy is to resolve names itself; \"\" is for none"
        }
    }
}
