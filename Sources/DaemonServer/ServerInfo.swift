import CacheCore
import ThumbcacheProtocol

/// The text of INFO: sections of `name:value` lines, as Redis writes them.
public struct ServerInfo: Sendable {
    public typealias Lines = [(name: String, value: String)]
    /// Returns the lines of a section for a peer. `figures` returns the sums over the peer's users, or over all users
    /// for an observer, computed once per INFO and only if a section calls it.
    public typealias Section = @Sendable (Peer, _ figures: () -> UserSessions.Figures) -> Lines

    /// Returns the work to await before a section may be written for a peer; nil if none is needed.
    public typealias Preparation = @Sendable (Peer) -> (@Sendable () async -> Void)?

    private let sections: KeyValuePairs<String, Section>
    private let preparations: [String: Preparation]

    public init(_ sections: KeyValuePairs<String, Section>, preparations: [String: Preparation] = [:]) {
        (self.sections, self.preparations) = (sections, preparations)
    }

    /// The work to await before ``text(_:for:figures:)``. Empty if all sections named are available at once.
    func preparations(for names: [String], _ peer: Peer) -> [@Sendable () async -> Void] {
        preparations.filter { isAll(names) || names.contains($0.key) }.compactMap { $1(peer) }
    }

    private func isAll(_ names: [String]) -> Bool {
        names.isEmpty || !Set(names).isDisjoint(with: InfoSection.everything)
    }

    /// - Parameter names: in lower case. None, `all`, `default` or `everything` mean every section; unknown ones are
    ///   ignored, as in Redis.
    func text(_ names: [String], for peer: Peer, figures: () -> UserSessions.Figures) -> String {
        lazy var known = figures()
        let isAll = isAll(names)
        var text = ""
        for (name, lines) in sections where isAll || names.contains(name) {
            if !text.isEmpty { text += "\r\n" }
            text += "# \(name.prefix(1).uppercased())\(name.dropFirst())\r\n"
            for line in lines(peer, { known }) {
                text += line.name
                text += ":"
                text += line.value
                text += "\r\n"
            }
        }
        return text
    }
}
