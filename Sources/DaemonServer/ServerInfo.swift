import CacheCore
import ThumbcacheProtocol

/// The text of INFO: sections of `name:value` lines, as Redis writes them.
public struct ServerInfo: Sendable {
    public typealias Lines = [(name: String, value: String)]
    /// What a section says to a peer: only observers are told figures of others. Handed in by whoever knows it, with
    /// what the peer's users come to, or those of all for an observer: that is found out once, where a section asks for
    /// it.
    public typealias Section = @Sendable (Peer, _ figures: () -> UserSessions.Figures) -> Lines

    private let sections: KeyValuePairs<String, Section>
    private let beforehand: [String: @Sendable () async -> Void]

    /// - Parameter beforehand: by section, what is to be found out before it is asked.
    public init(
        _ sections: KeyValuePairs<String, Section>, beforehand: [String: @Sendable () async -> Void] = [:]
    ) {
        (self.sections, self.beforehand) = (sections, beforehand)
    }

    /// What has to be found out before ``text(_:for:figures:)``; empty for what is known at once.
    func beforehand(_ names: [String]) -> [@Sendable () async -> Void] {
        beforehand.filter { isAll(names) || names.contains($0.key) }.map(\.value)
    }

    private func isAll(_ names: [String]) -> Bool {
        names.isEmpty || !Set(names).isDisjoint(with: InfoSection.everything)
    }

    /// - Parameter names: in lower case; none, `all`, `default` or `everything` for every section. An unknown one says
    ///   nothing, as in Redis.
    func text(_ names: [String], for peer: Peer, figures: () -> UserSessions.Figures) -> String {
        lazy var known = figures()
        let isAll = isAll(names)
        return sections.filter { isAll || names.contains($0.key) }.map { name, lines in
            let title = name.prefix(1).uppercased() + name.dropFirst()
            return lines(peer) { known }.reduce("# \(title)\r\n") { $0 + "\($1.name):\($1.value)\r\n" }
        }.joined(separator: "\r\n")
    }
}
