import Fleet
@_spi(Wire) import Thumbcache

@testable import thumbcached_relay

/// A host with its relay on a stream that is changed at random, and publishers that wait for its acknowledgements.
struct FakeHost {
    private var stream = FakeStream()
    private var snapshots: [FakeStream] = []
    /// The position on disk.
    private var saved: Position?
    private var random: SeededRandom
    /// Published entries whose publishers still wait. A failover or restore breaks the publishers' connections, so they
    /// wait no longer.
    private var published: [(user: String, id: StreamID, time: Int64, streamIdentity: String?)] = []
    private var done: Set<String> = []
    private(set) var falseAcknowledgements: [String] = []
    /// Defects, to check that the test detects them.
    var skipsCommands = false
    var ignoresGaps = false

    /// Where the relay is killed.
    enum Crash { case beforeSaving, beforeAcknowledging }

    init(seed: UInt64) { random = SeededRandom(seed: seed) }

    var isAtEnd: Bool {
        if case .wait = Decision(saved, stream.snapshot(after: saved?.id ?? .zero), .logoutAll) { true } else { false }
    }

    mutating func takeStep() {
        stream.time += Int64.random(in: 0...3, using: &random)
        switch Int.random(in: 0..<22, using: &random) {
        case 0..<6:
            let user = "user\(stream.time)-\(published.count)-\(done.count)"
            published.append((user, stream.add(user), stream.time, stream.streamIdentity))
        case 6..<13: follow()
        case 13: follow(crash: .beforeSaving)
        case 14: stream.trim(to: Int.random(in: 0...3, using: &random))
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
        case 19: deleteSomeEntry()
        case 20: follow(crash: .beforeAcknowledging)
        default:
            // The state directory is lost.
            if Int.random(in: 0..<5, using: &random) == 0 { saved = nil }
        }
    }

    private mutating func deleteSomeEntry() {
        guard let entry = stream.entries?.randomElement(using: &random) else { return }
        stream.delete(entry.id.milliseconds)
    }

    /// Reads the stream once and acts on it, as the relay does.
    mutating func follow(crash: Crash? = nil) {
        let snapshot = stream.snapshot(after: saved?.id ?? .zero)
        switch Decision(saved, snapshot, .logoutAll) {
        case .nameStream(let moment, _):
            stream.streamIdentity = StreamIdentity.name(after: moment, now: stream.time, random: random.bytes())
        case .closeGap(_, let then):
            if !ignoresGaps { done.formUnion(published.map(\.user)) }
            if crash == .beforeSaving { return }
            saved = then
            if crash == nil { acknowledge(snapshot) }
        case .execute(var entries, var then):
            // The daemon may fail after some of the entries.
            if let saved, Int.random(in: 0..<4, using: &random) == 0 {
                entries = Array(entries.prefix(Int.random(in: 1...entries.count, using: &random)))
                if entries.last?.id != then.id { then = saved.after(entries[...]) }
            }
            for entry in entries where !skipsCommands {
                if case .success(.logOut(let user, _)) = entry.command { done.insert(user.description) }
            }
            if crash == .beforeSaving { return }
            saved = then
            if crash == nil { acknowledge(snapshot) }
        case .wait: acknowledge(snapshot)
        case .reject(let damage): falseAcknowledgements.append("the stream is considered damaged: \(damage)")
        }
    }

    private mutating func acknowledge(_ snapshot: StreamSnapshot) {
        guard let saved else { return }
        let state = HostState(
            id: saved.id, time: snapshot.time, streamIdentity: snapshot.streamIdentity ?? "-", skipped: 0, process: "p")
        stream.acknowledge(state)
        for entry in published where !done.contains(entry.user) {
            if state.hasProcessed(entry.id, publishedAt: entry.time, in: stream.streamIdentity) {
                falseAcknowledgements.append("\(entry.user) at \(entry.id): \(state.text), but not executed")
            }
        }
    }
}

extension SeededRandom {
    mutating func bytes() -> [UInt8] { (0..<8).map { _ in UInt8.random(in: .min ... .max, using: &self) } }
}
