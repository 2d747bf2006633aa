import CacheCore
import ThumbcacheProtocol

/// The text of INFO: sections of `name:value` lines, as Redis writes them.
public struct ServerInfo: Sendable {
    public typealias Lines = [(name: String, value: String)]
    /// Returns the lines of a section for a peer. `figures` returns the sums over the peer's users, or over all users
    /// for an observer, computed once per INFO and only if a section calls it.
    public typealias Section = @Sendable (Peer, _ figures: () -> UserSessions.Figures) -> Lines

    private let sections: KeyValuePairs<String, Section>
    private let preparations: [String: @Sendable () async -> Void]

    public init(
        _ sections: KeyValuePairs<String, Section>, preparations: [String: @Sendable () async -> Void] = [:]
    ) {
        (self.sections, self.preparations) = (sections, preparations)
    }

    /// The work to await before ``text(_:for:figures:)``. Empty if all sections named are available at once.
    func preparations(for names: [String]) -> [@Sendable () async -> Void] {
        preparations.filter { isAll(names) || names.contains($0.key) }.map(\.value)
    }

    private func isAll(_ names: [String]) -> Bool {
        names.isEmpty || !Set(names).isDisjoint(with: InfoSection.everything)
    }

    /// - Parameter names: in lower case. None, `all`, `default` or `everything` mean every section; unknown ones are
    ///   ignored, as in Redis.
    func text(_ names: [String], for peer: Peer, figures: () -> UserSessions.Figures) -> String {
        lazy var known = figures()
        let isAll = isAll(names)
        return sections.filter { isAll || names.contains($0.key) }.map { name, lines in
            let title = name.prefix(1).uppercased() + name.dropFirst()
            return lines(peer) { known }.reduce("# \(title)\r\n") { $0 + "\($1.name):\($1.value)\r\n" }
        }.joined(separator: "\r\n")
    }
}
