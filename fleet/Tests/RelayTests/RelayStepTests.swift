import Fleet
import Foundation
import Logging
import NIOPosix
import Testing
@_spi(Wire) import Thumbcache

@testable import thumbcached_relay

/// The steps of a relay, with a daemon that fails and a position file on disk.
@Suite struct RelayStepTests {
    private let sink = FakeSink()
    private let start = Position(
        streamIdentity: FakeStream.name(1), id: StreamID(milliseconds: 5, sequence: 0), count: 7, wasSeen: false,
        deleted: StreamID(milliseconds: 4, sequence: 0))

    /// Runs `body` with a relay whose saved position is ``start``.
    private func withRelay(_ body: (inout Relay, PositionFile, _ directory: String) async throws -> Void) async throws {
        let directory = FileManager.default.temporaryDirectory.appending(path: "relay-\(UUID().uuidString)").path
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let file = try PositionFile(directory: directory)
        try file.save(start)
        let connector = try RedisConnector(
            RedisSettings(), name: "test", loop: MultiThreadedEventLoopGroup.singleton.any())
        let log = Logger(label: "silent", factory: { _ in SwiftLogNoOpLogHandler() })
        var relay = try Relay(
            RelayConfiguration(), connector: connector, sink: sink, file: file, log: log, now: { 0 })
        try await body(&relay, file, directory)
    }

    private func entries(_ users: String...) -> [StreamEntry] {
        users.enumerated().map { index, user in
            StreamEntry(
                id: StreamID(milliseconds: UInt64(10 + index), sequence: 0),
                command: .success(.logOut(ThumbcacheID(user), session: nil)))
        }
    }

    @Test func `in a gap, each failure to save the position lengthens the pause`() async throws {
        try await withRelay { relay, _, directory in
            // The temporary file cannot be created.
            let obstacle = directory + "/position.new"
            try FileManager.default.createDirectory(atPath: obstacle, withIntermediateDirectories: false)
            for failures in 1...3 {
                #expect(await !relay.close(.noPosition, start))
                #expect(relay.daemonFailures == failures)
            }
            try FileManager.default.removeItem(atPath: obstacle)
            #expect(await relay.close(.noPosition, start))
            #expect(relay.daemonFailures == 0)
        }
    }

    @Test func `entries before a failed one are executed once`() async throws {
        try await withRelay { relay, file, _ in
            let entries = entries("alice", "bob", "carol")
            var end = start
            (end.id, end.count, end.wasSeen) = (entries[2].id, 10, true)
            await sink.fail(for: "bob")
            #expect(await !relay.execute(entries, end))
            var expected = start
            (expected.id, expected.count, expected.wasSeen) = (entries[0].id, 8, true)
            let saved = try file.load()
            #expect(saved == expected)
            // The next snapshot contains only these.
            let unread = entries.filter { $0.id > saved?.id ?? .zero }
            for failures in 2...3 {
                #expect(await !relay.execute(unread, end))
                #expect(relay.daemonFailures == failures)
            }
            #expect(try file.load() == expected)
            await sink.fail(for: nil)
            #expect(await relay.execute(unread, end))
            #expect(try file.load() == end)
            #expect(await sink.users == ["alice", "bob", "carol"])
        }
    }
}

/// A daemon that fails for one user.
private actor FakeSink: CommandSink {
    /// The users who were logged out, in order.
    private(set) var users: [String] = []
    private var failing: String?

    func fail(for user: String?) { failing = user }

    func execute(_ command: FleetCommand) async throws(DeliveryError) -> String? {
        guard case .logOut(let user, _) = command else { return nil }
        if user.description == failing { throw DeliveryError(description: "IOERR") }
        users.append(user.description)
        return nil
    }
}
