import Fleet
@_spi(Wire) import Thumbcache

@testable import thumbcached_relay

/// Three hosts with their relays on a stream that loses entries, is restored and flushed, while hosts are away.
struct FakeFleet {
    private struct Host {
        /// The position on disk.
        var saved: Position?
        var done: Set<String> = []
        var isAway = false
    }

    private var stream = FakeStream()
    private var snapshots: [FakeStream] = []
    private var hosts = Array(repeating: Host(), count: 3)
    private var random: SeededRandom
    private var published: [String] = []
    /// Entries that at least one host has executed and acknowledged; all hosts must execute them.
    private var promised: Set<String> = []
    /// A defect, to check that the test detects it: a relay that detects a loss closes the gap only on its own host.
    var handlesLossLocally = false

    init(seed: UInt64) { random = SeededRandom(seed: seed) }

    mutating func takeStep() {
        stream.time += Int64.random(in: 0...3, using: &random)
        let host = hosts.indices.randomElement(using: &random) ?? 0
        switch Int.random(in: 0..<20, using: &random) {
        case 0..<5:
            let user = "user\(published.count)"
            published.append(user)
            stream.add(user)
        case 5..<13: if !hosts[host].isAway { follow(host) }
        case 13: if !hosts[host].isAway { follow(host, crashingBeforeSaving: true) }
        case 14, 15: hosts[host].isAway.toggle()
        case 16: snapshots.append(stream)
        case 17:
            stream.lose(Int.random(in: 0...3, using: &random))
            stream.time += 1
        case 18:
            guard let old = snapshots.randomElement(using: &random) else { return }
            let time = stream.time
            stream = old
            stream.time = time + 1
        default: if Int.random(in: 0..<4, using: &random) == 0 { stream.flush() }
        }
    }

    /// Brings all hosts back and lets them read the stream until they are at its end.
    /// - Returns: whether all hosts are at the end of the same stream.
    mutating func heal() -> Bool {
        for _ in 0..<20 {
            for host in hosts.indices.shuffled(using: &random) { follow(host) }
        }
        let position = hosts[0].saved
        return hosts.allSatisfy { $0.saved?.id == position?.id && $0.saved?.streamIdentity == stream.streamIdentity }
    }

    /// Entries that one host has executed and another has not.
    var forgotten: [String] {
        hosts.indices.flatMap { host in
            promised.subtracting(hosts[host].done).map { "\($0) was not executed on host \(host)" }
        }
    }

    private mutating func follow(_ host: Int, crashingBeforeSaving: Bool = false) {
        let snapshot = stream.snapshot(after: hosts[host].saved?.id ?? .zero)
        switch Decision(hosts[host].saved, snapshot, .logoutAll) {
        case .nameStream(_, _?) where handlesLossLocally:
            hosts[host].done.formUnion(published)
            // As without a position.
            guard case .closeGap(_, let then) = Decision(nil, snapshot, .logoutAll) else { return }
            hosts[host].saved = then
        case .nameStream(let moment, _):
            stream.streamIdentity = StreamIdentity.name(after: moment, now: stream.time, random: random.bytes())
        case .closeGap(_, let then):
            hosts[host].done.formUnion(published)
            if !crashingBeforeSaving { hosts[host].saved = then }
        case .execute(var entries, var then):
            // The daemon may fail after some of the entries.
            if let saved = hosts[host].saved, Int.random(in: 0..<4, using: &random) == 0 {
                entries = Array(entries.prefix(Int.random(in: 1...entries.count, using: &random)))
                if entries.last?.id != then.id { then = saved.after(entries[...]) }
            }
            let users = entries.compactMap { entry in
                if case .success(.logOut(let user, _)) = entry.command { user.description } else { nil }
            }
            hosts[host].done.formUnion(users)
            if crashingBeforeSaving { return }
            hosts[host].saved = then
            promised.formUnion(users)
        case .wait, .reject: break
        }
    }
}
