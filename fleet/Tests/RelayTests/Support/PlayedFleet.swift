import Fleet
@_spi(Wire) import Thumbcache

@testable import thumbcached_relay

/// Some hosts with their relays on a stream that loses its end, is restored and flushed, while any of them is away.
struct PlayedFleet {
    private struct Host {
        /// On disk.
        var saved: Position?
        var done: Set<String> = []
        var isAway = false
    }

    private var stream = PlayedStream()
    private var snapshots: [PlayedStream] = []
    private var hosts = Array(repeating: Host(), count: 3)
    private var random: SplitMix
    private var published: [String] = []
    /// What a host has done and kept on record: from then on it is to become true on all.
    private var promised: Set<String> = []
    /// A mistake, for the test of the test: what a relay sees lost it makes up for on its own host only.
    var keepsItToItself = false

    init(seed: UInt64) { random = SplitMix(state: seed) }

    mutating func takeStep() {
        stream.time += Int64.random(in: 0...3, using: &random)
        let host = hosts.indices.randomElement(using: &random) ?? 0
        switch Int.random(in: 0..<20, using: &random) {
        case 0..<5:
            let user = "user\(published.count)"
            published.append(user)
            stream.add(user)
        case 5..<13: if !hosts[host].isAway { follow(host) }
        case 13: if !hosts[host].isAway { follow(host, dyingBeforeSaving: true) }
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

    /// All are back, and nothing else happens.
    /// - Returns: whether they come to the stream's end, and stay there.
    mutating func heal() -> Bool {
        for _ in 0..<20 {
            for host in hosts.indices.shuffled(using: &random) { follow(host) }
        }
        let position = hosts[0].saved
        return hosts.allSatisfy { $0.saved?.id == position?.id && $0.saved?.streamIdentity == stream.streamIdentity }
    }

    /// What one host has done and another has not.
    var forgotten: [String] {
        hosts.indices.flatMap { host in
            promised.subtracting(hosts[host].done).map { "\($0) is still on host \(host)" }
        }
    }

    private mutating func follow(_ host: Int, dyingBeforeSaving: Bool = false) {
        let look = stream.look(behind: hosts[host].saved?.id ?? .zero)
        switch Decision(hosts[host].saved, look, .logoutAll) {
        case .nameStream(_, _?) where keepsItToItself:
            hosts[host].done.formUnion(published)
            // As with no position.
            guard case .closeGap(_, let then) = Decision(nil, look, .logoutAll) else { return }
            hosts[host].saved = then
        case .nameStream(let moment, _):
            stream.streamIdentity = StreamIdentity.name(after: moment, now: stream.time, random: random.bytes())
        case .closeGap(_, let then):
            hosts[host].done.formUnion(published)
            if !dyingBeforeSaving { hosts[host].saved = then }
        case .carryOut(let entries, let then):
            let users = entries.compactMap { entry in
                if case .success(.logOut(let user, _)) = entry.order { user.description } else { nil }
            }
            hosts[host].done.formUnion(users)
            if dyingBeforeSaving { return }
            hosts[host].saved = then
            promised.formUnion(users)
        case .wait, .reject: break
        }
    }
}
