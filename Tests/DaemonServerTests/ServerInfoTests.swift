import Testing

@testable import DaemonServer

@Suite struct ServerInfoTests {
    private static let info = ServerInfo([
        .init("server", isForAdmins: false) { _ in [("a", "1"), ("b", "2")] },
        .init("memory", isForAdmins: true) { _ in [("c", "3")] },
        .init("cache", isForAdmins: false) { _ in [] },
    ])

    private static let server = "# Server\r\na:1\r\nb:2\r\n"
    private static let memory = "# Memory\r\nc:3\r\n"
    private static let cache = "# Cache\r\n"

    static let rows: [(names: [String], isAdmin: Bool, text: String)] = [
        ([], false, "\(server)\r\n\(cache)"), ([], true, "\(server)\r\n\(memory)\r\n\(cache)"),
        (["all"], true, "\(server)\r\n\(memory)\r\n\(cache)"), (["everything"], false, "\(server)\r\n\(cache)"),
        (["default", "nonesuch"], false, "\(server)\r\n\(cache)"),
        (["cache", "server"], false, "\(server)\r\n\(cache)"),
        (["memory"], false, ""), (["memory"], true, memory), (["nonesuch"], true, ""),
    ]

    @Test(arguments: rows)
    func `INFO has the sections asked for, as far as the caller may see them`(
        _ row: (names: [String], isAdmin: Bool, text: String)
    ) {
        #expect(Self.info.text(row.names, for: Peer(uid: 1, pid: 1, isAdmin: row.isAdmin)) == row.text)
    }
}
