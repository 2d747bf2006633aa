import NIOCore

/// The text of INFO: sections of `name:value` lines, as Redis writes them. What a section says is handed in by whoever
/// knows it.
public struct ServerInfo: Sendable {
    /// One section.
    public struct Section: Sendable {
        public let name: String
        /// Whether figures of all uids together stand in it: then only admins see it.
        public let isForAdmins: Bool
        public let lines: @Sendable (Peer) -> [(name: String, value: String)]

        public init(
            _ name: String, isForAdmins: Bool = false,
            lines: @escaping @Sendable (Peer) -> [(name: String, value: String)]
        ) {
            self.name = name
            self.isForAdmins = isForAdmins
            self.lines = lines
        }
    }

    private let sections: [Section]

    public init(_ sections: [Section]) {
        self.sections = sections
    }

    /// - Parameter names: in lower case; none, `all`, `default` or `everything` for every section. An unknown one says
    ///   nothing, as in Redis.
    func text(_ names: [String], for peer: Peer) -> String {
        let isWanted: (String) -> Bool = { name in
            names.isEmpty || names.contains(name) || !Set(names).isDisjoint(with: ["all", "default", "everything"])
        }
        return sections.filter { isWanted($0.name) && (peer.isAdmin || !$0.isForAdmins) }.map { section in
            let title = section.name.prefix(1).uppercased() + section.name.dropFirst()
            return section.lines(peer).reduce("# \(title)\r\n") { $0 + "\($1.name):\($1.value)\r\n" }
        }.joined(separator: "\r\n")
    }
}
