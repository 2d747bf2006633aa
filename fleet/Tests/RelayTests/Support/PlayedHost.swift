import Fleet
@_spi(Wire) import Thumbcache

@testable import thumbcached_relay

/// A host with its relay, whose publishers wait for it, on a stream to which anything may happen.
struct PlayedHost {
    private var stream = PlayedStream()
    private var snapshots: [PlayedStream] = []
    /// On disk.
    private var saved: Position?
    private var random: SplitMix
    /// What was published, and who waits for it: nobody does any more when the server was another for a moment, since
    /// that breaks the connection on which he waits.
    private var published: [(user: String, id: StreamID, time: Int64, streamIdentity: String?)] = []
    private var done: Set<String> = []
    private(set) var lies: [String] = []
    /// Mistakes, for the tests of the test.
    var skipsOrders = false
    var ignoresGaps = false

    /// A stream that loses its end and one that is trimmed or deleted from by hand of what nobody has read are not told
    /// apart.
    private let isTrimmedByHand: Bool
    private static let keep: Int64 = 8

    init(seed: UInt64) {
        random = SplitMix(state: seed)
        isTrimmedByHand = seed.isMultiple(of: 2)
    }

    var isAtEnd: Bool {
        if case .wait = Decision(saved, stream.look(behind: saved?.id ?? .zero), .logoutAll) { true } else { false }
    }

    mutating func takeStep() {
        stream.time += Int64.random(in: 0...3, using: &random)
        switch Int.random(in: 0..<20, using: &random) {
        case 0..<6:
            let user = "user\(stream.time)-\(published.count)-\(done.count)"
            published.append((user, stream.add(user), stream.time, stream.streamIdentity))
        case 6..<13: follow()
        case 13: follow(dyingBeforeSaving: true)
        case 14 where isTrimmedByHand: stream.trim(to: Int.random(in: 0...3, using: &random))
        case 14:
            stream.trim(olderThan: Self.keep)
            // Nobody waits for so long.
            published.removeAll { $0.time < stream.time - Self.keep }
        case 15 where isTrimmedByHand: deleteSomeEntry()
        case 18 where isTrimmedByHand: break
        case 15:
            stream.lose(Int.random(in: 0...3, using: &random))
            stream.time += 1
            published = []
        case 16:
            stream.flush()
        case 17: snapshots.append(stream)
        case 18:
            guard let old = snapshots.randomElement(using: &random) else { return }
            let time = stream.time
            stream = old
            stream.time = time + 1
            published = []
        default:
            // The state directory is lost.
            if Int.random(in: 0..<5, using: &random) == 0 { saved = nil }
        }
    }

    private mutating func deleteSomeEntry() {
        guard let entry = stream.entries?.randomElement(using: &random) else { return }
        stream.delete(entry.id.milliseconds)
    }

    /// As the relay does it, one look.
    mutating func follow(dyingBeforeSaving: Bool = false) {
        let look = stream.look(behind: saved?.id ?? .zero)
        switch Decision(saved, look, .logoutAll) {
        case .nameStream(let moment, _):
            stream.streamIdentity = StreamIdentity.name(after: moment, now: stream.time, random: random.bytes())
        case .closeGap(_, let then):
            if !ignoresGaps { done.formUnion(published.map(\.user)) }
            if dyingBeforeSaving { return }
            saved = then
            acknowledge(look)
        case .carryOut(let entries, let then):
            for entry in entries where !skipsOrders {
                if case .success(.logOut(let user, _)) = entry.order { done.insert(user.description) }
            }
            if dyingBeforeSaving { return }
            saved = then
            acknowledge(look)
        case .wait: acknowledge(look)
        case .reject(let damage): lies.append("the stream is called damaged: \(damage)")
        }
    }

    private mutating func acknowledge(_ look: StreamSnapshot) {
        guard let saved else { return }
        let state = HostState(
            id: saved.id, time: look.time, streamIdentity: look.streamIdentity ?? "-", skipped: 0, process: "p")
        for entry in published where !done.contains(entry.user) {
            if state.hasDone(entry.id, publishedAt: entry.time, in: stream.streamIdentity) {
                lies.append("\(entry.user) at \(entry.id) is said to be done by \(state.text)")
            }
        }
    }
}

/// https://prng.di.unimi.it/splitmix64.c
struct SplitMix: RandomNumberGenerator {
    var state: UInt64

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ mixed >> 30) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ mixed >> 27) &* 0x94D0_49BB_1331_11EB
        return mixed ^ mixed >> 31
    }

    mutating func bytes() -> [UInt8] { (0..<8).map { _ in UInt8.random(in: .min ... .max, using: &self) } }
}
