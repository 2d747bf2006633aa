import Glibc
import NIOConcurrencyHelpers
import ThumbnailCache

/// What is wrong with an origin's configuration.
public struct OriginError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The configuration key at fault, as it is written in the file.
    public let key: String
    /// One sentence: what is wrong and what would be right.
    public let reason: String

    public init(key: String, reason: String) {
        self.key = key
        self.reason = reason
    }

    public var description: String { "\(key): \(reason)" }
}

/// The rules of the origins in use, each taken apart once: by name, for as long as its configuration stays the same.
/// There are as many as origins are configured.
final class OriginRulesCache: Sendable {
    private let pages = NIOLockedValueBox<[String: (origin: Origin, rules: OriginRules)]>([:])

    func rules(of origin: Origin) throws(OriginError) -> OriginRules {
        if let page = pages.withLockedValue({ $0[origin.name] }), page.origin == origin { return page.rules }
        let rules = try OriginRules(origin)
        pages.withLockedValue { $0[origin.name] = (origin, rules) }
        return rules
    }
}

/// An origin as the fetcher reads it. Taking one apart costs tens of microseconds and asks nobody.
struct OriginRules: Sendable {
    let template: URLTemplate
    let allow: AllowList

    init(_ origin: Origin) throws(OriginError) {
        template = try URLTemplate(origin.url)
        allow = try AllowList(origin.allow)
    }

    /// Everything that can be told of an origin before it is asked. Reads whether `ca-file` is there.
    static func validate(_ origin: Origin) throws(OriginError) {
        _ = try OriginRules(origin)
        try checkProxy(origin.proxy)
        try TokenRules.validate(origin)
        if !origin.caFile.isEmpty, access(origin.caFile, R_OK) != 0 {
            let reason = String(cString: strerror(errno))
            throw OriginError(key: "ca-file", reason: "\(origin.caFile) cannot be read: \(reason)")
        }
        let numbers: [(key: String, value: Int64, range: ClosedRange<Int64>, unit: String)] = [
            ("default-size", Int64(origin.defaultSize), 1...4096, " pixels"),
            ("connect-timeout", origin.connectTimeout, 1...86_400_000, " ms"),
            ("timeout", origin.timeout, 1...86_400_000, " ms"),
            ("connections", Int64(origin.connections), 1...65_536, ""),
            ("failures", Int64(origin.breaker.failures), 1...1_000_000, ""),
            ("backoff", origin.breaker.backoff, 1...86_400_000, " ms"),
            ("backoff-max", origin.breaker.backoffMax, min(origin.breaker.backoff, 86_400_000)...86_400_000, " ms"),
            ("retry-after-max", origin.breaker.retryAfterMax, 0...86_400_000, " ms"),
            ("lowest-speed", Int64(origin.lowestSpeed), 0...1 << 30, " bytes a second"),
        ]
        for number in numbers where !number.range.contains(number.value) {
            throw OriginError(
                key: number.key,
                reason: "\(number.value)\(number.unit) is not from \(number.range.lowerBound) to "
                    + "\(number.range.upperBound)\(number.unit)")
        }
    }

    /// The target that a client's request leads to.
    func target(origin: Origin, user: OpaqueID, slot: Slot, url: String?) throws(TargetError) -> DownloadTarget {
        guard let url else {
            let size = slot.size == 0 ? origin.defaultSize : slot.size
            let filled = try template.filled(profile: slot.profile, user: user, size: size)
            return DownloadTarget(url: filled, isNamedByClient: false)
        }
        do throws(WebURL.Refusal) {
            let named = try WebURL(url)
            try allow.check(named)
            return DownloadTarget(url: named.string, isNamedByClient: true)
        } catch {
            switch error {
            case .malformed(let sentence): throw .invalid(sentence)
            case .forbidden(let sentence): throw .denied(sentence)
            }
        }
    }

    /// Whether the configuration names the URL's host: as the template's, or by an `allow` entry.
    func names(_ url: WebURL) -> Bool {
        template.authority == url.authority || allow.allows(url)
    }

    private static func checkProxy(_ proxy: String) throws(OriginError) {
        guard !proxy.isEmpty else { return }
        // Not socks4 and socks5: libcurl would resolve names here, and hand the proxy an address that nobody has judged.
        let schemes = ["http", "https", "socks4a", "socks5h"]
        guard let end = proxy.firstRange(of: "://"), schemes.contains(proxy[..<end.lowerBound].lowercased()),
            end.upperBound < proxy.endIndex, proxy.utf8.allSatisfy({ $0 > 0x20 && $0 != 0x7F })
        else {
            // The value is not shown: it may hold a password.
            throw OriginError(
                key: "proxy",
                reason:
                    "a proxy is \(schemes.map { "\($0)://" }.joined(separator: ", ")) and a host: one that resolves names "
                    + "itself, so socks5h:// instead of socks5:// and socks4a:// instead of socks4://")
        }
    }
}
