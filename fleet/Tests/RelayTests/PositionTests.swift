import Fleet
import Foundation
import LinuxSupport
import Testing

@testable import thumbcached_relay

@Suite struct PositionTests {
    static let position = Position(
        streamIdentity: String(repeating: "1a", count: 16), id: StreamID(milliseconds: 17, sequence: 3), count: 42,
        wasSeen: true, deleted: StreamID(milliseconds: 16, sequence: 2))

    @Test func `a position is read back as written; partial and malformed ones are rejected`() {
        let text = Self.position.text
        #expect(Position(text: text) == Self.position)
        var unseen = Self.position
        unseen.wasSeen = false
        #expect(Position(text: unseen.text) == unseen)
        for length in 0..<text.count { #expect(Position(text: String(text.prefix(length))) == nil, "\(length) bytes") }
        for (old, new) in [
            ("relay 2", "relay 1"), ("deleted 16-2", "deleted 16"), ("17-3", "\(UInt64.max)-\(UInt64.max)"),
            ("count 42", "count -1"), ("count 42", "count x"), ("seen 1", "seen 2"),
            ("17-3", "17"), ("1a1a", "1A1a"), ("1a1a", "1a"), ("id ", "at "),
        ] {
            #expect(Position(text: text.replacingOccurrences(of: old, with: new)) == nil, "\(new)")
        }
        #expect(Position(text: text + "more\n") == nil)
    }

    @Test func `a position file is replaced, and locked by one relay`() throws {
        let path = FileManager.default.temporaryDirectory.appending(path: "relay-\(UUID().uuidString)").path
        defer { try? FileManager.default.removeItem(atPath: path) }
        let file = try PositionFile(directory: path)
        #expect(try file.load() == nil)
        for count in 0..<3 {
            var next = Self.position
            next.count = count
            try file.save(next)
            #expect(try file.load() == next)
        }
        // Left by a relay that was killed during a write.
        try Data("half".utf8).write(to: URL(fileURLWithPath: path + "/position.new"))
        try file.save(Self.position)
        #expect(try FileManager.default.contentsOfDirectory(atPath: path) == ["position"])
        let failure = #expect(throws: SystemError.self) { try PositionFile(directory: path) }
        #expect(failure?.action == "another relay keeps its position in \(path)")
        try Data("thumbcached-relay 2\n".utf8).write(to: URL(fileURLWithPath: path + "/position"))
        #expect(try file.load() == nil)
    }

    @Test func `a host has executed an entry according to id, time and stream identity`() throws {
        let state = HostState(
            id: StreamID(milliseconds: 9, sequence: 1), time: 100, streamIdentity: "x", skipped: 2, process: "p")
        #expect(HostState(state.text) == state)
        for odd in ["", "9-1", "9-1 100 x", "9-1 100 x 0", "9 100 x 0 p", "9-1 soon x 0 p"] {
            #expect(HostState(odd) == nil)
        }
        // Later versions may add fields.
        #expect(HostState(state.text + " more") == state)
        var busy = state
        busy.seen = 105
        #expect(busy.text == "9-1 100 x 2 p 105" && HostState(busy.text) == busy)
        let id = state.id
        #expect(state.hasProcessed(id, publishedAt: 100, in: "x"))
        #expect(state.hasProcessed(id.predecessor, publishedAt: 1, in: "x"))
        #expect(!state.hasProcessed(StreamID(milliseconds: 9, sequence: 2), publishedAt: 1, in: "x"))
        #expect(!state.hasProcessed(id, publishedAt: 101, in: "x"))
        #expect(!state.hasProcessed(id, publishedAt: 100, in: "y"))
        #expect(!state.hasProcessed(id, publishedAt: 100, in: nil))
    }

    @Test func `an outage triggers one action after the grace period`() {
        var watch = OutageWatch(grace: 100, now: 1_000)
        #expect(!watch.isDue(at: 1_099))
        // Also if there never was a connection; repeated until it succeeds.
        for now: Int64 in [1_100, 1_500] { #expect(watch.isDue(at: now)) }
        watch.handled()
        #expect(!watch.isDue(at: 9_000))
        watch.contact(at: 9_000)
        #expect(watch.hasContact(since: 9_000) && !watch.hasContact(since: 9_001))
        #expect(!watch.isDue(at: 9_099) && watch.isDue(at: 9_100))
    }
}
