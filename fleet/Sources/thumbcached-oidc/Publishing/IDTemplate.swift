@_spi(Wire) import Thumbcache

/// A template that builds a cache id from a token's claims, such as `{sub}@example.org`.
struct IDTemplate: Equatable, Sendable {
    private enum Part: Equatable, Sendable {
        case text(String)
        case subject
        case session
    }

    private let parts: [Part]

    /// - Returns: nil without a claim, or with an unknown claim or an unmatched brace.
    init?(_ text: String) {
        var parts: [Part] = []
        var rest = Substring(text)
        while !rest.isEmpty {
            let literal = rest.prefix { $0 != "{" && $0 != "}" }
            if !literal.isEmpty { parts.append(.text(String(literal))) }
            rest = rest.dropFirst(literal.count)
            if rest.isEmpty { break }
            if rest.hasPrefix("{sub}") {
                parts.append(.subject)
            } else if rest.hasPrefix("{sid}") {
                parts.append(.session)
            } else {
                return nil
            }
            rest = rest.dropFirst("{sub}".count)
        }
        guard parts.contains(.subject) || parts.contains(.session) else { return nil }
        self.parts = parts
    }

    /// - Throws: the name of a claim that the token lacks.
    func id(_ token: LogoutToken) throws(MissingClaim) -> ThumbcacheID {
        var bytes: [UInt8] = []
        for part in parts {
            switch part {
            case .text(let text): bytes += text.utf8
            case .subject: bytes += try claim(token.subject, "sub").utf8
            case .session: bytes += try claim(token.session, "sid").utf8
            }
        }
        return ThumbcacheID(bytes: bytes)
    }

    private func claim(_ value: String?, _ name: String) throws(MissingClaim) -> String {
        // An empty claim would map different users to the same id.
        guard let value, !value.isEmpty else { throw MissingClaim(name: name) }
        return value
    }
}

struct MissingClaim: Error, Equatable {
    let name: String
}
