import Testing

@testable import CacheCore
@testable import DaemonServer

@Suite struct ServerInfoTests {
    private static let info = ServerInfo([
        "server": { _, _ in [("a", "1"), ("b", "2")] },
        "memory": { $0.isAdmin ? [("c", "\($1().memoryHits)")] : [] },
        "cache": { _, figures in [("d", "\(figures().memoryHits)")] },
    ])

    private static let server = "# Server\r\na:1\r\nb:2\r\n"
    private static let memory = "# Memory\r\nc:3\r\n"
    private static let cache = "# Cache\r\nd:3\r\n"

    static let rows: [(names: [String], isAdmin: Bool, text: String, computations: Int)] = [
        ([], false, "\(server)\r\n# Memory\r\n\r\n\(cache)", 1), ([], true, "\(server)\r\n\(memory)\r\n\(cache)", 1),
        (["all"], true, "\(server)\r\n\(memory)\r\n\(cache)", 1),
        (["everything"], false, "\(server)\r\n# Memory\r\n\r\n\(cache)", 1),
        (["default", "nonesuch"], true, "\(server)\r\n\(memory)\r\n\(cache)", 1),
        (["cache", "server"], false, "\(server)\r\n\(cache)", 1), (["server"], true, server, 0),
        (["memory"], false, "# Memory\r\n", 0), (["memory"], true, memory, 1), (["nonesuch"], true, "", 0),
    ]

    @Test(arguments: rows)
    func `INFO has the requested sections, and computes figures at most once`(
        _ row: (names: [String], isAdmin: Bool, text: String, computations: Int)
    ) {
        var computations = 0
        let text = Self.info.text(row.names, for: Peer(uid: 1, pid: 1, isAdmin: row.isAdmin)) {
            computations += 1
            return UserSessions.Figures(memoryHits: 3)
        }
        #expect(text == row.text)
        #expect(computations == row.computations)
    }
}
