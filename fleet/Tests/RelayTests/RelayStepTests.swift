import Fleet
import Foundation
import Logging
import NIOPosix
import Testing
@_spi(Wire) import Thumbcache

@testable import thumbcached_relay

/// The steps of a relay with a position file on disk.
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
}

/// A daemon that never fails.
private struct FakeSink: CommandSink {
    func execute(_ command: FleetCommand) async throws(DeliveryError) -> String? { nil }
}
