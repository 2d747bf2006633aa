import Fleet
import Foundation
import Testing
@_spi(Wire) import Thumbcache

@testable import thumbcached_relay

/// What follows from a look, case by case.
@Suite struct DecisionTests {
    private let ours = PlayedStream.name(1)

    private func position(_ id: UInt64, count: Int, seen: Bool = true) -> Position {
        Position(
            streamIdentity: ours, id: StreamID(milliseconds: id, sequence: 0), count: count, wasSeen: seen)
    }

    /// Entries 10, 20, 30, 40, named.
    private func stream() -> PlayedStream {
        var stream = PlayedStream()
        stream.streamIdentity = ours
        for time: Int64 in [10, 20, 30, 40] {
            stream.time = time
            stream.add("user\(time)")
        }
        return stream
    }

    private func decide(_ saved: Position?, _ stream: PlayedStream, _ policy: GapPolicy = .logoutAll) -> String {
        switch Decision(saved, stream.look(behind: saved?.id ?? .zero), policy) {
        case .nameStream(_, let loss): loss.map { "name, \($0)" } ?? "name"
        case .wait: "wait"
        case .closeGap(let gap, let then): "\(gap) then \(then.id) \(then.count) \(then.wasSeen)"
        case .reject(let damage): damage.sentence("fleet")
        case .carryOut(let entries, let then):
            entries.map { "\($0.id.milliseconds)" }.joined(separator: " ") + " then \(then.id) \(then.count)"
        }
    }

    @Test func `a stream without a name gets one, before anything else is believed of it`() {
        var stream = stream()
        stream.streamIdentity = nil
        #expect(decide(nil, stream) == "name")
        #expect(decide(position(20, count: 2), stream) == "name")
        stream.streamIdentity = "somebody else's"
        #expect(decide(position(20, count: 2), stream) == "name")
    }

    @Test func `what is behind the position is carried out; at the end there is nothing to do`() {
        #expect(decide(position(20, count: 2), stream()) == "30 40 then 40-0 4")
        #expect(decide(position(40, count: 4), stream()) == "wait")
        #expect(decide(position(0, count: 0, seen: false), stream()) == "10 20 30 40 then 40-0 4")
    }

    @Test func `after a crash between receipt and position, the same entries are carried out again, then new ones`() {
        var stream = stream()
        let saved = position(20, count: 2)
        #expect(decide(saved, stream) == "30 40 then 40-0 4")
        stream.time = 50
        stream.add("erin")
        #expect(decide(saved, stream) == "30 40 50 then 50-0 5")
    }

    @Test func `more than one look takes is taken in several, with the count right throughout`() {
        var (stream, saved) = (stream(), position(0, count: 0, seen: false))
        stream.mostEntries = 3
        #expect(decide(saved, stream) == "10 20 30 then 30-0 3")
        saved = position(30, count: 3)
        #expect(decide(saved, stream) == "40 then 40-0 4")
    }

    @Test func `without a position log-outs may have been missed, also those that nobody can see any more`() {
        #expect(decide(nil, stream()) == "noPosition then 40-0 4 true")
        var empty = PlayedStream()
        empty.streamIdentity = ours
        #expect(decide(nil, empty) == "noPosition then 0-0 0 false")
        #expect(decide(position(0, count: 0, seen: false), empty) == "wait")
    }

    @Test func `another name is another stream`() {
        var stream = stream()
        stream.streamIdentity = PlayedStream.name(41)
        #expect(decide(position(40, count: 4), stream) == "otherStream then 40-0 4 true")
        stream.flush()
        stream.streamIdentity = PlayedStream.name(41)
        #expect(decide(position(40, count: 4), stream) == "otherStream then 0-0 0 false")
    }

    @Test func `a name from before, or from before what was read, would be no news to others: it is replaced`() {
        var stream = stream()
        for name in [PlayedStream.name(0), PlayedStream.name(40), ours.replacingOccurrences(of: "a", with: "b")] {
            stream.streamIdentity = name
            #expect(decide(position(40, count: 4), stream) == "name, earlierStream", "\(name)")
        }
        guard case .nameStream(40, _) = Decision(position(40, count: 4), stream.look(behind: .zero), .logoutAll) else {
            Issue.record("the new name has to be later than the entry")
            return
        }
    }

    @Test func `a new name is of now, is later than what it comes after, and there is none behind the last`() {
        let random = [UInt8](repeating: 7, count: 8)
        let digits = "0707070707070707"
        #expect(StreamIdentity.name(after: 9, now: 5, random: random) == "000000000000000a" + digits)
        #expect(StreamIdentity.name(after: 9, now: 32, random: random) == "0000000000000020" + digits)
        #expect(StreamIdentity.name(after: 0, now: -1, random: random) == "0000000000000001" + digits)
        for moment in [UInt64(Int64.max) - 1, UInt64(Int64.max), .max - 1, .max] {
            #expect(StreamIdentity.isOne(StreamIdentity.name(after: moment, now: .max, random: random)), "\(moment)")
        }
        #expect(!StreamIdentity.isOne("8000000000000000" + digits))
        #expect(StreamIdentity.start(PlayedStream.name(7)) == 7)
    }

    @Test func `entries that were trimmed unread are missed, those that were trimmed behind the position are not`() {
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

    @Test func `a stream that ends before the position has lost its end`() {
        var stream = stream()
        stream.lose(1)
        #expect(decide(position(40, count: 4), stream) == "name, wentBack")
        #expect(decide(position(30, count: 3), stream) == "wait")
        stream.entries = nil
        #expect(decide(position(30, count: 3), stream) == "name, wentBack")
    }

    @Test func `a stream that lost its end and goes on has never had the entry at the position`() {
        var stream = stream()
        stream.lose(1)
        stream.time = 50
        stream.add("erin")
        #expect(decide(position(40, count: 4), stream) == "name, rewritten")
        stream.add("frank")
        #expect(decide(position(40, count: 4), stream) == "name, rewritten")
    }

    @Test func `a stream of as many entries whose last is another has been rewritten, also where all are trimmed`() {
        var stream = stream()
        stream.lose(1)
        stream.time = 50
        stream.add("erin")
        stream.trim(to: 0)
        #expect(decide(position(40, count: 4), stream) == "name, rewritten")
    }

    @Test func `a stream that began anew under its old name tells so by its count`() {
        var stream = stream()
        (stream.entries, stream.added) = ([], 0)
        stream.time = 50
        stream.add("erin")
        #expect(decide(position(40, count: 4), stream) == "name, wentBack")
    }

    @Test(arguments: [GapPolicy.purgeAll, .ignore])
    func `where nobody is logged out, all that is still there is carried out`(_ policy: GapPolicy) {
        var stream = stream()
        stream.trim(to: 2)
        #expect(decide(position(10, count: 1), stream, policy) == "trimmed then 29-\(UInt64.max) 2 false")
        let behind = Position(
            streamIdentity: ours, id: StreamID(milliseconds: 29, sequence: .max), count: 2, wasSeen: false)
        #expect(decide(behind, stream, policy) == "30 40 then 40-0 4")
        #expect(decide(nil, stream, policy) == "noPosition then 29-\(UInt64.max) 2 false")
        // It may be trimmed once more, before it is read.
        stream.trim(to: 1)
        #expect(decide(behind, stream, policy) == "trimmed then 39-\(UInt64.max) 3 false")
        stream.trim(to: 0)
        #expect(decide(behind, stream, policy) == "trimmed then 40-0 4 false")
    }

    @Test func `deleting an entry that was read is no gap, the last one included`() {
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
    func `deleting an entry that was not read is a gap, and only one`(_ deleted: [UInt64]) {
        for policy in GapPolicy.allCases {
            var stream = stream()
            for id in deleted { stream.delete(id) }
            let saved = position(20, count: 2)
            guard case .closeGap(let gap, var then) = Decision(saved, stream.look(behind: saved.id), policy) else {
                Issue.record("\(policy): \(decide(saved, stream, policy))")
                continue
            }
            #expect(gap == (deleted.count == 4 ? .trimmed : .deleted))
            if case .carryOut(_, let next) = Decision(then, stream.look(behind: then.id), policy) { then = next }
            #expect(decide(then, stream, policy) == "wait", "\(policy)")
            stream.time = 50
            stream.add("erin")
            #expect(decide(then, stream, policy) == "50 then 50-0 5", "\(policy)")
        }
    }

    @Test func `a deleted entry is a gap before what precedes it is carried out`() {
        var stream = stream()
        stream.mostEntries = 1
        stream.delete(30)
        #expect(decide(position(10, count: 1), stream) == "deleted then 40-0 4 true")
    }

    @Test func `an entry that is deleted while a gap is made up for is a second gap`() {
        var stream = stream()
        stream.delete(40)
        let saved = position(20, count: 2)
        guard case .closeGap(.deleted, let then) = Decision(saved, stream.look(behind: saved.id), .ignore) else {
            Issue.record("no gap")
            return
        }
        // Less than the greatest id that was deleted.
        stream.delete(30)
        #expect(decide(then, stream, .ignore) == "trimmed then 9-\(UInt64.max) 2 false")
    }

    /// An entry of any publisher with an id of its own choice.
    @Test(arguments: [StreamID.last, StreamID(milliseconds: 86_400_041, sequence: 0)])
    func `an id that is far ahead of the server's clock is damage, and nothing is learned from it`(_ id: StreamID) {
        var stream = stream()
        stream.lastID = id
        stream.entries?.append(.init(id: id, user: "mallory"))
        stream.added += 1
        for saved in [nil, position(40, count: 4), position(0, count: 0, seen: false)] {
            #expect(
                decide(saved, stream)
                    == "the stream fleet is damaged: the id \(id) is more than a day ahead of the server's clock; "
                    + "correct the server's clock if it is wrong, otherwise remove the stream with: redis-cli DEL fleet "
                    + "(every host then does what its on-gap says)")
        }
        // Each entry that is added is news, for which the policy's action is due again.
        let before = stream.look(behind: .zero).damage
        stream.added += 1
        #expect(before != nil && stream.look(behind: .zero).damage != before)
        // The repair, and what a host makes of it.
        (stream.entries, stream.added) = (nil, 0)
        #expect(decide(position(40, count: 4), stream) == "name, wentBack")
        stream.add("erin")
        #expect(decide(position(40, count: 4), stream) == "name, wentBack")
    }

    @Test func `an id within a day of the server's clock is followed`() {
        var stream = stream()
        stream.time = 40
        stream.lastID = StreamID(milliseconds: 86_400_040, sequence: 0)
        stream.entries?.append(.init(id: stream.lastID, user: "erin"))
        stream.added += 1
        #expect(decide(position(40, count: 4), stream) == "86400040 then 86400040-0 5")
    }

    @Test func `a deleted id from the far future is damage, too`() {
        var stream = stream()
        stream.lastDeletedID = .last
        #expect(decide(position(40, count: 4), stream).hasPrefix("the stream fleet is damaged: the id 1844"))
    }

    @Test(arguments: [Int.min, -1, 3])
    func `a count of added entries that is impossible is damage`(_ added: Int) {
        var stream = stream()
        stream.added = added
        #expect(decide(position(40, count: 4), stream).contains("the server counts \(added) entries"))
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

    /// A position and a name that earlier versions wrote after they had read such an id.
    @Test func `a position or a name from the far future is worth nothing`() {
        let (stream, far) = (stream(), UInt64(Int64.max))
        #expect(decide(position(far, count: 4), stream) == "noPosition then 40-0 4 true")
        var saved = position(40, count: 4)
        saved.streamIdentity = PlayedStream.name(far)
        #expect(decide(saved, stream) == "noPosition then 40-0 4 true")
        var named = stream
        named.streamIdentity = PlayedStream.name(far)
        guard case .nameStream(1, nil) = Decision(position(1, count: 1), named.look(behind: .zero), .logoutAll) else {
            Issue.record("\(decide(position(1, count: 1), named))")
            return
        }
    }
}
