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
    private let entries = NIOLockedValueBox<[String: (origin: Origin, rules: OriginRules)]>([:])

    func rules(of origin: Origin) throws(OriginError) -> OriginRules {
        if let entry = entries.withLockedValue({ $0[origin.name] }), entry.origin == origin { return entry.rules }
        let rules = try OriginRules(origin)
        entries.withLockedValue { $0[origin.name] = (origin, rules) }
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

    /// What only the fetcher can tell of an origin before it is asked: whether its URLs are such. Numbers, files and
    /// the proxy are judged where the configuration is read.
    static func validate(_ origin: Origin) throws(OriginError) {
        _ = try OriginRules(origin)
        try TokenRules.validate(origin)
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
}
