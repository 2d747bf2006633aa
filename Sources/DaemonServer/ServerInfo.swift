import ThumbnailCache

/// The text of INFO: sections of `name:value` lines, as Redis writes them.
public struct ServerInfo: Sendable {
    public typealias Lines = [(name: String, value: String)]
    /// What a section says to a peer: only admins are told figures of others. Handed in by whoever knows it, with what
    /// the peer's users come to, or those of all for an admin: that is found out once, where a section asks for it.
    public typealias Section = @Sendable (Peer, _ figures: () -> UserSessions.Figures) -> Lines

    private let sections: KeyValuePairs<String, Section>

    public init(_ sections: KeyValuePairs<String, Section>) {
        self.sections = sections
    }

    /// - Parameter names: in lower case; none, `all`, `default` or `everything` for every section. An unknown one says
    ///   nothing, as in Redis.
    func text(_ names: [String], for peer: Peer, figures: () -> UserSessions.Figures) -> String {
        lazy var known = figures()
        let isAll = names.isEmpty || !Set(names).isDisjoint(with: ["all", "default", "everything"])
        return sections.filter { isAll || names.contains($0.key) }.map { name, lines in
            let title = name.prefix(1).uppercased() + name.dropFirst()
            return lines(peer) { known }.reduce("# \(title)\r\n") { $0 + "\($1.name):\($1.value)\r\n" }
        }.joined(separator: "\r\n")
    }
}
