import NIOCore

/// A host as one origin reaches it: with that origin's authorities, proxy and time-outs. What one origin's settings make fail
/// says nothing about the same host as another origin reaches it.
struct HostKey: Hashable, Sendable {
    /// The origin's name.
    let origin: String
    /// Scheme, host and port, as ``WebURL/authority`` has them.
    let authority: String
}

/// The hosts that have failed of late, and which of them are left alone.
///
/// A value without effects. A host that works is not in it. Redirects can name any number of hosts: so no more than ``most`` are
/// remembered, and of those that are not being asked the one that may soonest be asked anyway is forgotten for a new one (I8).
struct HostTable: Sendable {
    static let most = 1_024

    private var hosts: [HostKey: HostHealth] = [:]

    var count: Int { hosts.count }

    /// Why a request to the host would not be sent now.
    func refusal(of key: HostKey, at now: NIODeadline) -> HostHealth.Refusal? {
        hosts[key]?.refusal(at: now)
    }

    mutating func ask(_ key: HostKey, at now: NIODeadline) throws(HostHealth.Refusal) -> HostHealth.Permit {
        guard var health = hosts[key] else { return .usual }
        let permit = try health.ask(at: now)
        hosts[key] = health
        return permit
    }

    /// Returns whether the host is left alone from now on, and was not before.
    mutating func learn(
        _ verdict: HostHealth.Verdict, of key: HostKey, from permit: HostHealth.Permit, at now: NIODeadline,
        rules: HostHealth.Rules, draw: Backoff.Draw
    ) -> Bool {
        var health = hosts[key] ?? HostHealth()
        let isLeftAlone = health.learn(verdict, from: permit, at: now, rules: rules, draw: draw)
        if health.isFine {
            hosts[key] = nil
        } else {
            if hosts[key] == nil, hosts.count >= Self.most { forgetOne() }
            if hosts[key] != nil || hosts.count < Self.most { hosts[key] = health }
        }
        return isLeftAlone
    }

    /// Of each origin with hosts that are left alone: how many these are, and the milliseconds until the last of them may be asked; 0 while one
    /// is being asked.
    func leftAlone(at now: NIODeadline) -> [String: (hosts: Int, milliseconds: Int64)] {
        var all: [String: (hosts: Int, milliseconds: Int64)] = [:]
        for (key, health) in hosts {
            guard let refusal = health.refusal(at: now) else { continue }
            var milliseconds: Int64 = 0
            if case .leftAlone(let left) = refusal { milliseconds = left }
            let before = all[key.origin] ?? (0, 0)
            all[key.origin] = (before.hosts + 1, max(before.milliseconds, milliseconds))
        }
        return all
    }

    private mutating func forgetOne() {
        var first: (key: HostKey, until: NIODeadline)?
        for (key, health) in hosts {
            let until: NIODeadline
            switch health.state {
            case .closed: until = .distantPast
            case .open(let end, _): until = end
            case .halfOpen: continue
            }
            if until < first?.until ?? .distantFuture { first = (key, until) }
        }
        if let first { hosts[first.key] = nil }
    }
}
