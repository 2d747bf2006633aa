import Fleet
import Foundation
import Testing
@_spi(Wire) import Thumbcache

@testable import thumbcached_relay

/// The relay's decision for each state of the stream.
@Suite struct DecisionTests {
    private let ours = FakeStream.name(1)

    private func position(_ id: UInt64, count: Int, seen: Bool = true) -> Position {
        Position(
            streamIdentity: ours, id: StreamID(milliseconds: id, sequence: 0), count: count, wasSeen: seen)
    }

    /// A stream with an identity and the entries 10, 20, 30 and 40.
    private func stream() -> FakeStream {
        var stream = FakeStream()
        stream.streamIdentity = ours
        for time: Int64 in [10, 20, 30, 40] {
            stream.time = time
            stream.add("user\(time)")
        }
        return stream
    }

    /// A snapshot for a host that has acknowledged its position.
    private func snapshot(_ stream: FakeStream, _ saved: Position?) -> StreamSnapshot {
        var snapshot = stream.snapshot(after: saved?.id ?? .zero)
        snapshot.row = saved.map { row($0) }
        return snapshot
    }

    private func row(_ position: Position) -> HostState {
        HostState(id: position.id, time: 0, streamIdentity: position.streamIdentity, skipped: 0, process: "p")
    }

    private func decide(_ saved: Position?, _ stream: FakeStream, _ policy: GapPolicy = .logoutAll) -> String {
        decide(saved, snapshot(stream, saved), policy)
    }

    private func decide(_ saved: Position?, _ snapshot: StreamSnapshot, _ policy: GapPolicy = .logoutAll) -> String {
        switch Decision(saved, snapshot, policy) {
        case .nameStream(_, let loss): loss.map { "name, \($0)" } ?? "name"
        case .wait: "wait"
        case .closeGap(let gap, let then): "\(gap) then \(then.id) \(then.count) \(then.wasSeen)"
        case .reject(let damage): damage.sentence("fleet")
        case .execute(let entries, let then):
            entries.map { "\($0.id.milliseconds)" }.joined(separator: " ") + " then \(then.id) \(then.count)"
        }
    }

    @Test func `a stream without an identity gets one before it is read`() {
        var stream = stream()
        stream.streamIdentity = nil
        #expect(decide(nil, stream) == "name")
        #expect(decide(position(20, count: 2), stream) == "name")
        stream.streamIdentity = "invalid"
        #expect(decide(position(20, count: 2), stream) == "name")
    }

    @Test func `entries after the position are executed; at the end the relay waits`() {
        #expect(decide(position(20, count: 2), stream()) == "30 40 then 40-0 4")
        #expect(decide(position(40, count: 4), stream()) == "wait")
        #expect(decide(position(0, count: 0, seen: false), stream()) == "10 20 30 40 then 40-0 4")
    }

    @Test func `after a crash before the position was saved, the same entries are executed again`() {
        var stream = stream()
        let saved = position(20, count: 2)
        #expect(decide(saved, stream) == "30 40 then 40-0 4")
        stream.time = 50
        stream.add("erin")
        #expect(decide(saved, stream) == "30 40 50 then 50-0 5")
    }

    @Test func `more entries than one read returns are read in several steps`() {
        var (stream, saved) = (stream(), position(0, count: 0, seen: false))
        stream.mostEntries = 3
        #expect(decide(saved, stream) == "10 20 30 then 30-0 3")
        saved = position(30, count: 3)
        #expect(decide(saved, stream) == "40 then 40-0 4")
    }

    @Test func `a missing position is a gap`() {
        #expect(decide(nil, stream()) == "noPosition then 40-0 4 true")
        var empty = FakeStream()
        empty.streamIdentity = ours
        #expect(decide(nil, empty) == "noPosition then 0-0 0 false")
        #expect(decide(position(0, count: 0, seen: false), empty) == "wait")
    }

    @Test func `another identity is another stream`() {
        var stream = stream()
        stream.streamIdentity = FakeStream.name(41)
        #expect(decide(position(40, count: 4), stream) == "otherStream then 40-0 4 true")
        stream.flush()
        stream.streamIdentity = FakeStream.name(41)
        #expect(decide(position(40, count: 4), stream) == "otherStream then 0-0 0 false")
    }

    @Test func `an identity older than the position's identity or entry is replaced`() {
        var stream = stream()
        for name in [FakeStream.name(0), FakeStream.name(40), ours.replacingOccurrences(of: "a", with: "b")] {
            stream.streamIdentity = name
            #expect(decide(position(40, count: 4), stream) == "name, earlierStream", "\(name)")
        }
        guard case .nameStream(40, _) = Decision(position(40, count: 4), stream.snapshot(after: .zero), .logoutAll)
        else {
            Issue.record("the new identity must be later than the entry")
            return
        }
    }

    @Test func `a new identity has the current time, or a later one than its predecessor`() {
        let random = [UInt8](repeating: 7, count: 8)
        let digits = "0707070707070707"
        #expect(StreamIdentity.name(after: 9, now: 5, random: random) == "000000000000000a" + digits)
        #expect(StreamIdentity.name(after: 9, now: 32, random: random) == "0000000000000020" + digits)
        #expect(StreamIdentity.name(after: 0, now: -1, random: random) == "0000000000000001" + digits)
        for moment in [UInt64(Int64.max) - 1, UInt64(Int64.max), .max - 1, .max] {
            #expect(StreamIdentity.isOne(StreamIdentity.name(after: moment, now: .max, random: random)), "\(moment)")
        }
        #expect(!StreamIdentity.isOne("8000000000000000" + digits))
        #expect(StreamIdentity.start(FakeStream.name(7)) == 7)
    }

    @Test func `entries trimmed before they were read are a gap`() {
        var stream = stream()
        stream.trim(to: 2)
        #expect(decide(position(10, count: 1), stream) == "trimmed then 40-0 4 true")
        #expect(decide(position(20, count: 2), stream) == "30 40 then 40-0 4")
        #expect(decide(position(30, count: 3), stream) == "40 then 40-0 4")
        #expect(decide(position(0, count: 0, seen: false), stream) == "trimmed then 40-0 4 true")
        stream.trim(to: 0)
        #expect(decide(position(40, count: 4), stream) == "wait")
        #expect(decide(position(30, count: 3), stream) == "trimmed then 40-0 4 false")
    }

    @Test func `a trimmed position is a gap if the server has no acknowledgment of it`() {
        var stream = stream()
        stream.lose(1)
        stream.time = 50
        for user in ["erin", "frank"] { stream.add(user) }
        // Trims erin, which the host has not read.
        stream.trim(to: 1)
        let saved = position(40, count: 4)
        var snapshot = stream.snapshot(after: saved.id)
        let rows = [nil, row(position(30, count: 3)), row(position(0, count: 0)), HostState.unknown]
        for row in rows {
            snapshot.row = row
            #expect(decide(saved, snapshot) == "unproven then 50-1 5 true", "\(row?.text ?? "no row")")
        }
        snapshot.row = row(saved)
        snapshot.row?.streamIdentity = FakeStream.name(41)
        #expect(decide(saved, snapshot) == "unproven then 50-1 5 true")
        // The row is later than the position if the state directory was restored.
        for id: UInt64 in [40, 49] {
            snapshot.row = row(position(id, count: 4))
            #expect(decide(saved, snapshot) == "50 then 50-1 5")
        }
    }

    @Test func `a position without an acknowledgment is no gap unless unread entries may have been removed`() {
        var stream = stream()
        func decide(_ saved: Position) -> String { self.decide(saved, stream.snapshot(after: saved.id)) }
        #expect(decide(position(0, count: 0, seen: false)) == "10 20 30 40 then 40-0 4")
        #expect(decide(position(20, count: 2)) == "30 40 then 40-0 4")
        stream.trim(to: 3)
        #expect(decide(position(20, count: 2)) == "30 40 then 40-0 4")
        stream.trim(to: 0)
        #expect(decide(position(40, count: 4)) == "wait")
    }

    @Test func `a stream that ends before the position has lost its end`() {
        var stream = stream()
        stream.lose(1)
        #expect(decide(position(40, count: 4), stream) == "name, wentBack")
        #expect(decide(position(30, count: 3), stream) == "wait")
        stream.entries = nil
        #expect(decide(position(30, count: 3), stream) == "name, wentBack")
    }

    @Test func `a stream that lost its end and got new entries is detected`() {
        var stream = stream()
        stream.lose(1)
        stream.time = 50
        stream.add("erin")
        #expect(decide(position(40, count: 4), stream) == "name, rewritten")
        stream.add("frank")
        #expect(decide(position(40, count: 4), stream) == "name, rewritten")
    }

    @Test func `a stream with the same count but another last id is detected, even if all entries are trimmed`() {
        var stream = stream()
        stream.lose(1)
        stream.time = 50
        stream.add("erin")
        stream.trim(to: 0)
        #expect(decide(position(40, count: 4), stream) == "name, rewritten")
    }

    @Test func `a stream recreated with its old identity is detected by its count`() {
        var stream = stream()
        (stream.entries, stream.added) = ([], 0)
        stream.time = 50
        stream.add("erin")
        #expect(decide(position(40, count: 4), stream) == "name, wentBack")
    }

    @Test(arguments: [GapPolicy.purgeAll, .ignore])
    func `if a gap logs out no user, the remaining entries are executed`(_ policy: GapPolicy) {
        var stream = stream()
        stream.trim(to: 2)
        #expect(decide(position(10, count: 1), stream, policy) == "trimmed then 29-\(UInt64.max) 2 false")
        let behind = Position(
            streamIdentity: ours, id: StreamID(milliseconds: 29, sequence: .max), count: 2, wasSeen: false)
        #expect(decide(behind, stream, policy) == "30 40 then 40-0 4")
        #expect(decide(nil, stream, policy) == "noPosition then 29-\(UInt64.max) 2 false")
        // Trimmed once more before it is read.
        stream.trim(to: 1)
        #expect(decide(behind, stream, policy) == "trimmed then 39-\(UInt64.max) 3 false")
        stream.trim(to: 0)
        #expect(decide(behind, stream, policy) == "trimmed then 40-0 4 false")
    }

    @Test func `deleting an entry that was read is not a gap`() {
        var stream = stream()
        stream.delete(40)
        #expect(decide(position(40, count: 4), stream) == "wait")
        stream.delete(20)
        #expect(decide(position(40, count: 4), stream) == "wait")
        stream.time = 50
        stream.add("erin")
        #expect(decide(position(40, count: 4), stream) == "50 then 50-0 5")
        stream.delete(10, 30)
        #expect(decide(position(40, count: 4), stream) == "50 then 50-0 5")
        stream.delete(50)
        #expect(decide(position(50, count: 5), stream) == "wait")
    }

    @Test(arguments: [[30], [40], [30, 40], [10, 30], [20, 40], [10, 20, 30, 40]] as [[UInt64]])
    func `deleting an unread entry is exactly one gap`(_ deleted: [UInt64]) {
        for policy in GapPolicy.allCases {
            var stream = stream()
            for id in deleted { stream.delete(id) }
            let saved = position(20, count: 2)
            guard case .closeGap(let gap, var then) = Decision(saved, stream.snapshot(after: saved.id), policy) else {
                Issue.record("\(policy): \(decide(saved, stream, policy))")
                continue
            }
            #expect(gap == (deleted.count == 4 ? .trimmed : .deleted))
            if case .execute(_, let next) = Decision(then, snapshot(stream, then), policy) { then = next }
            #expect(decide(then, stream, policy) == "wait", "\(policy)")
            stream.time = 50
            stream.add("erin")
            #expect(decide(then, stream, policy) == "50 then 50-0 5", "\(policy)")
        }
    }

    @Test func `a deletion is detected before the preceding entries are executed`() {
        var stream = stream()
        stream.mostEntries = 1
        stream.delete(30)
        #expect(decide(position(10, count: 1), stream) == "deleted then 40-0 4 true")
    }

    @Test func `an entry deleted while a gap is being closed is a second gap`() {
        var stream = stream()
        stream.delete(40)
        let saved = position(20, count: 2)
        guard case .closeGap(.deleted, let then) = Decision(saved, stream.snapshot(after: saved.id), .ignore) else {
            Issue.record("no gap")
            return
        }
        // Smaller than the greatest deleted id.
        stream.delete(30)
        #expect(decide(then, stream, .ignore) == "trimmed then 9-\(UInt64.max) 2 false")
    }

    @Test func `an unread entry deleted after a greater one is a gap`() {
        var stream = stream()
        stream.mostEntries = 1
        stream.delete(40)
        let saved = position(20, count: 2)
        guard case .closeGap(.deleted, let begin) = Decision(saved, stream.snapshot(after: saved.id), .ignore),
            case .execute(_, let next) = Decision(begin, snapshot(stream, begin), .ignore)
        else {
            Issue.record("no gap")
            return
        }
        #expect(next.id.milliseconds == 10)
        stream.delete(30)
        #expect(decide(next, stream, .ignore) == "deleted then 9-\(UInt64.max) 2 false")
    }

    /// Publishers can choose ids.
    @Test(arguments: [StreamID.last, StreamID(milliseconds: 86_400_041, sequence: 0)])
    func `an id far ahead of the server's clock is damage, and is not used`(_ id: StreamID) {
        var stream = stream()
        stream.lastID = id
        stream.entries?.append(.init(id: id, user: "mallory"))
        stream.added += 1
        for saved in [nil, position(40, count: 4), position(0, count: 0, seen: false)] {
            #expect(
                decide(saved, stream)
                    == "the stream fleet is damaged: the id \(id) is more than a day ahead of the server's clock; "
                    + "correct the server's clock if it is wrong, otherwise remove the stream with: redis-cli DEL fleet "
                    + "(every host then applies its on-gap)")
        }
        // Each added entry changes the damage, so that the policy's action is repeated.
        let before = stream.snapshot(after: .zero).damage
        stream.added += 1
        #expect(before != nil && stream.snapshot(after: .zero).damage != before)
        // After the repair the host detects a gap.
        (stream.entries, stream.added) = (nil, 0)
        #expect(decide(position(40, count: 4), stream) == "name, wentBack")
        stream.add("erin")
        #expect(decide(position(40, count: 4), stream) == "name, wentBack")
    }

    @Test func `an id less than a day ahead of the server's clock is read`() {
        var stream = stream()
        stream.time = 40
        stream.lastID = StreamID(milliseconds: 86_400_040, sequence: 0)
        stream.entries?.append(.init(id: stream.lastID, user: "erin"))
        stream.added += 1
        #expect(decide(position(40, count: 4), stream) == "86400040 then 86400040-0 5")
    }

    @Test func `a deleted id far in the future is damage`() {
        var stream = stream()
        stream.lastDeletedID = .last
        #expect(decide(position(40, count: 4), stream).hasPrefix("the stream fleet is damaged: the id 1844"))
    }

    @Test(arguments: [Int.min, -1, 3])
    func `an impossible entries-added is damage`(_ added: Int) {
        var stream = stream()
        stream.added = added
        #expect(decide(position(40, count: 4), stream).contains("entries-added is \(added),"))
    }

    @Test(arguments: [0, 4, Int.max - 1, Int.max])
    func `counts at the end of their range do not trap`(_ count: Int) {
        for added in [4, Int.max - 1, Int.max] {
            var stream = stream()
            stream.added = added
            for time in [Int64.min, -1, 0, 40, .max] {
                stream.time = time
                for policy in GapPolicy.allCases { _ = decide(position(30, count: count), stream, policy) }
            }
        }
    }

    /// Earlier versions wrote these after reading such an id.
    @Test func `a position or an identity far in the future is ignored`() {
        let (stream, far) = (stream(), UInt64(Int64.max))
        #expect(decide(position(far, count: 4), stream) == "noPosition then 40-0 4 true")
        var saved = position(40, count: 4)
        saved.streamIdentity = FakeStream.name(far)
        #expect(decide(saved, stream) == "noPosition then 40-0 4 true")
        var named = stream
        named.streamIdentity = FakeStream.name(far)
        guard case .nameStream(1, nil) = Decision(position(1, count: 1), named.snapshot(after: .zero), .logoutAll)
        else {
            Issue.record("\(decide(position(1, count: 1), named))")
            return
        }
    }
}
