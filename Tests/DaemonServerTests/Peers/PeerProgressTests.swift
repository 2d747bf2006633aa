import Testing

@testable import DaemonServer

@Suite struct PeerProgressTests {
    typealias Row = (what: String, earlier: PeerProgress, later: PeerProgress, hasStalled: Bool)

    private static func at(_ sent: Int, unread: Int = 0, frames: Int = 0, inside: Bool = false) -> PeerProgress {
        PeerProgress(sent: sent, unread: unread, frames: frames, isInsideFrame: inside)
    }

    static let rows: [Row] = [
        ("idle", at(5), at(5), false),
        ("reads nothing", at(5, unread: 10), at(5, unread: 10), true),
        ("reads nothing while more is written", at(5, unread: 10), at(5, unread: 90), true),
        ("reads a byte", at(5, unread: 10), at(6, unread: 9), false),
        ("has read everything", at(5, unread: 10), at(15), false),
        ("the output is new", at(5, inside: true), at(5, unread: 10, frames: 1), false),
        ("sends nothing of an unfinished frame", at(5, inside: true), at(5, inside: true), true),
        (
            "F18: sends single bytes and completes no frame", at(5, frames: 3, inside: true),
            at(9, frames: 3, inside: true), true
        ),
        ("has completed a frame and begun another", at(5, inside: true), at(5, frames: 1, inside: true), false),
        ("the unfinished frame is new", at(5, unread: 10), at(15, inside: true), false),
    ]

    @Test(arguments: rows)
    func `F17, F18: a peer stalls if it had to read or send for the whole period and did neither`(_ row: Row) {
        #expect(row.later.hasStalled(since: row.earlier) == row.hasStalled, "\(row.what)")
    }

    @Test func `a peer with unread output or an unfinished frame is watched`() {
        #expect(!Self.at(5).isAwaited)
        #expect(Self.at(5, unread: 1).isAwaited)
        #expect(Self.at(5, inside: true).isAwaited)
    }
}
