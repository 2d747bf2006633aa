import CacheCore
import HelperProtocol
import NIOCore
import Origins

/// A host as one origin reaches it: with that origin's authorities, proxy and time-outs. What one origin's settings
/// make fail says nothing about the same host as another origin reaches it.
struct HostKey: Hashable, Sendable {
    /// The origin's name.
    let origin: String
    /// Scheme, host and port, as ``WebURL/authority`` has them.
    let authority: String

    init(origin: String, authority: String) { (self.origin, self.authority) = (origin, authority) }

    /// Whoever answers for a domain when it is asked for a service: no host's authority begins like its name.
    init(origin: String, namedBy domain: String) { self.init(origin: origin, authority: ServiceName.of(domain)) }

    /// A domain that is asked is part of an address, and not repeated. Hosts that it names are named as any are.
    var inSentences: String { authority.hasPrefix("_") ? "the name server of the address's domain" : authority }
}

/// Who may ask which host.
///
/// That a host cannot be reached concerns everybody, since nobody can bring it about by what he asks for: each such
/// host has one breaker for all. What comes once there is a connection may be about who asked (a 429 for a token, a 500
/// for a picture, silence for an address), and opens that uid's own breaker and no other (F68). Where several uids met
/// such failures with no success between, the host is likely to be broken for all: then each uid's breaker opens with
/// its first failure. But each finds out for itself: anybody with two uids could keep a breaker open that two can open.
///
/// A value without effects. A host that works is not in it. Redirects can name any number of hosts, and one account may
/// have many uids: so the tables have limits, and what makes room for the new is of the uid that has most (I8).
struct CircuitBreakers: Sendable {
    /// Hosts that are remembered.
    static let mostHosts = 1_024
    /// Breakers of a single uid.
    static let mostOfUID = 64
    /// Breakers of single uids, all together.
    static let mostOfUIDs = 8_192
    /// Uids that one host's next probe passes over.
    static let mostPassedOver = 256

    /// What a request showed of its host.
    enum Finding: Equatable, Sendable {
        /// It answers: with an image, without one, or with a refusal that is the asker's own matter.
        case works
        /// It answers, and no to a credential: such attempts are limited like failures, and say nothing to others.
        case refused
        /// No connection, for want of an address, an open port or TLS.
        case unreachable
        /// Once connected it breaks off, does not answer in time, or says that it is broken or asked too much.
        /// `retryAfter`: milliseconds that it asked for.
        case failed(retryAfter: Int64?)
        /// Nothing: the request was cancelled, or failed for reasons of our own.
        case nothing
    }

    /// What a request was sent with: of the breaker for all, and of the uid's own.
    struct Permit: Equatable, Sendable {
        fileprivate(set) var shared = CircuitBreaker.Permit.usual
        fileprivate(set) var own = CircuitBreaker.Permit.usual

        /// Whether everybody waits for what this request shows of the way to the host.
        var isProbeForAll: Bool { shared == .probe }
    }

    /// What a finding did to the breaker for a uid, or for everybody where there is none.
    enum Change: Equatable, Sendable {
        /// Rejected from now on, and not before.
        case opened(for: UInt32?)
        case closed(for: UInt32?)

        fileprivate static func all(for uid: UInt32?, opens: Bool, closes: Bool) -> [Self] {
            (opens ? [.opened(for: uid)] : []) + (closes ? [.closed(for: uid)] : [])
        }
    }

    private var hosts: [HostKey: Host] = [:]
    private var own: [UInt32: [HostKey: CircuitBreaker]] = [:]
    private var ownCount = 0

    /// Hosts, and breakers of single uids.
    var count: (hosts: Int, own: Int) { (hosts.count, ownCount) }

    /// Why a request of the uid to the host would not be sent now; nil when it would.
    func rejection(of host: HostKey, for uid: UInt32, at now: NIODeadline) -> CircuitBreaker.Rejection? {
        hosts[host]?.rejection(for: uid, at: now) ?? own[uid]?[host]?.rejection(at: now)
    }

    /// Asks to send a request, of which ``learn(_:of:for:from:at:rules:draw:)`` has to be told the end.
    mutating func ask(
        _ host: HostKey, for uid: UInt32, at now: NIODeadline
    ) throws(CircuitBreaker.Rejection) -> Permit {
        // Both are asked before either is changed: a probe that is not sent would never be reported on.
        if let rejection = rejection(of: host, for: uid, at: now) { throw rejection }
        return Permit(
            shared: try hosts[host]?.breaker.ask(at: now) ?? .usual, own: try own[uid]?[host]?.ask(at: now) ?? .usual)
    }

    /// The request with that permit has a connection. Nobody waits for its answer to be told that the host can be
    /// reached: who asks for something slow would else keep the others out meanwhile, and by cancelling it for longer.
    mutating func connected(_ host: HostKey, for uid: UInt32, with permit: inout Permit) -> [Change] {
        guard permit.isProbeForAll, var shared = hosts[host] else { return [] }
        let isClosed = shared.connected(with: permit.shared)
        permit.shared = .usual
        keep(shared, of: host)
        return isClosed ? [.closed(for: nil)] : []
    }

    /// What the request with that permit showed. Returns what that did to the breakers.
    @discardableResult
    mutating func learn(
        _ finding: Finding, of host: HostKey, for uid: UInt32, from permit: Permit, at now: NIODeadline,
        rules: CircuitBreaker.Rules, draw: Backoff.Draw
    ) -> [Change] {
        var shared = hosts[host] ?? Host(uid: uid)
        let wasClosed = shared.breaker.isClosed
        let opens = shared.learn(finding, of: uid, from: permit.shared, at: now, rules: rules, draw: draw)
        var changes = Change.all(for: nil, opens: opens, closes: !wasClosed && shared.breaker.isClosed)
        keep(shared, of: host)

        var rules = rules
        if shared.isBrokenForSeveral(atLeast: rules.failures) { rules.failures = 1 }
        var breaker = own[uid]?[host] ?? CircuitBreaker()
        let wasOwnClosed = breaker.isClosed
        let opensOwn = breaker.learn(finding.ofAnswer, from: permit.own, at: now, rules: rules, draw: draw)
        changes += Change.all(for: uid, opens: opensOwn, closes: !wasOwnClosed && breaker.isClosed)
        keep(breaker, of: host, for: uid)
        return changes
    }

    /// Counts the breakers that are not closed, and for how long, in figures that have none of them yet.
    func addFigures(to figures: inout FetcherStatistics, at now: NIODeadline) {
        for (key, host) in hosts {
            guard let left = host.breaker.rejection(at: now)?.milliseconds else { continue }
            figures.hostsOpen += 1
            figures.origins[key.origin, default: .init()].add(retryIn: left, isForAll: true)
        }
        for (key, breaker) in own.values.joined() {
            guard let left = breaker.rejection(at: now)?.milliseconds else { continue }
            figures.uidsOpen += 1
            figures.origins[key.origin, default: .init()].add(retryIn: left, isForAll: false)
        }
    }

    // MARK: Limits

    private mutating func keep(_ host: Host, of key: HostKey) {
        guard !host.isFine else {
            hosts[key] = nil
            return
        }
        if hosts[key] == nil, hosts.count >= Self.mostHosts { forgetHost() }
        if hosts[key] != nil || hosts.count < Self.mostHosts { hosts[key] = host }
    }

    private mutating func keep(_ breaker: CircuitBreaker, of key: HostKey, for uid: UInt32) {
        guard !breaker.isFine else { return forget(key, of: uid) }
        if own[uid]?[key] == nil {
            let ofUID = own[uid]?.count ?? 0
            if ofUID >= Self.mostOfUID {
                forgetBreaker(of: uid)
            } else if ownCount >= Self.mostOfUIDs, let most = own.max(by: { $0.value.count < $1.value.count }) {
                forgetBreaker(of: most.key)
            }
            guard own[uid]?.count ?? 0 < Self.mostOfUID, ownCount < Self.mostOfUIDs else { return }
            ownCount += 1
        }
        own[uid, default: [:]][key] = breaker
    }

    private mutating func forget(_ key: HostKey, of uid: UInt32) {
        guard own[uid]?.removeValue(forKey: key) != nil else { return }
        ownCount -= 1
        if own[uid]?.isEmpty == true { own[uid] = nil }
    }

    /// Of one uid's breakers the one that matters the shortest.
    private mutating func forgetBreaker(of uid: UInt32) {
        if let first = Self.shortest(own[uid] ?? [:], \.self) { forget(first, of: uid) }
    }

    /// Of the hosts that the uid with most of them put here, the one that matters the shortest.
    private mutating func forgetHost() {
        var counts: [UInt32: Int] = [:]
        for host in hosts.values where host.breaker.matters != nil { counts[host.uid, default: 0] += 1 }
        guard let most = counts.max(by: { $0.value < $1.value })?.key else { return }
        if let first = Self.shortest(hosts.filter { $0.value.uid == most }, \.breaker) { hosts[first] = nil }
    }

    private static func shortest<Value>(_ all: [HostKey: Value], _ breaker: (Value) -> CircuitBreaker) -> HostKey? {
        all.compactMap { key, value in breaker(value).matters.map { (key, $0) } }.min { $0.1 < $1.1 }?.0
    }
}

/// One host, whoever asks it.
private struct Host {
    /// Whose request put it here.
    let uid: UInt32
    /// Of connections to it.
    var breaker = CircuitBreaker()
    /// Failures in a row of requests that had a connection, the first uid that met one, and whether another has, too.
    private var failures: (count: Int, first: UInt32?, areOfSeveral: Bool) = (0, nil, false)
    /// The uids that were to find out for all and gave up without a connection, and until when others go first.
    private var passedOver: [UInt32: NIODeadline] = [:]

    init(uid: UInt32) { self.uid = uid }

    var isFine: Bool { breaker.isFine && failures.count == 0 }

    func isBrokenForSeveral(atLeast count: Int) -> Bool { failures.areOfSeveral && failures.count >= count }

    /// As the breaker has it; but a uid that takes each probe and cancels it would keep the host shut for all, and so
    /// the next probe is another's for as long as one that had failed would have kept everybody waiting.
    func rejection(for uid: UInt32, at now: NIODeadline) -> CircuitBreaker.Rejection? {
        if let rejection = breaker.rejection(at: now) { return rejection }
        guard case .open = breaker.state, let until = passedOver[uid], until > now else { return nil }
        return .open(milliseconds: until.millisecondsLeft(at: now))
    }

    mutating func connected(with permit: CircuitBreaker.Permit) -> Bool {
        let isClosed = breaker.close(from: permit)
        if isClosed { passedOver = [:] }
        return isClosed
    }

    mutating func learn(
        _ finding: CircuitBreakers.Finding, of uid: UInt32, from permit: CircuitBreaker.Permit, at now: NIODeadline,
        rules: CircuitBreaker.Rules, draw: Backoff.Draw
    ) -> Bool {
        switch finding {
        case .works, .refused: failures = (0, nil, false)
        case .unreachable, .nothing: break
        case .failed:
            let first = failures.first ?? uid
            failures = (failures.count + 1, first, failures.areOfSeveral || first != uid)
        }
        let attempt = breaker.probedAttempt
        let opens = breaker.learn(finding.ofConnection, from: permit, at: now, rules: rules, draw: draw)
        guard permit == .probe, let attempt else { return opens }
        guard finding == .nothing else {
            passedOver = [:]
            return opens
        }
        passedOver = passedOver.filter { $0.value > now }
        if passedOver.count < CircuitBreakers.mostPassedOver {
            passedOver[uid] = now + .milliseconds(rules.backoff.wait(attempt: attempt, draw: draw))
        }
        return opens
    }
}

extension CircuitBreakers.Finding {
    /// What it says of the way to the host.
    fileprivate var ofConnection: CircuitBreaker.Verdict {
        switch self {
        case .works, .refused, .failed: .works
        case .unreachable: .failed(retryAfter: nil)
        case .nothing: .nothing
        }
    }

    /// What it says of how the host treats the uid that asked.
    fileprivate var ofAnswer: CircuitBreaker.Verdict {
        switch self {
        case .works: .works
        case .refused: .failed(retryAfter: nil)
        case .failed(let retryAfter): .failed(retryAfter: retryAfter)
        case .unreachable, .nothing: .nothing
        }
    }
}

extension CircuitBreaker {
    /// Until when forgetting it would lose something; nil while a request is finding out, and has to be told of.
    fileprivate var matters: NIODeadline? {
        switch state {
        case .closed: .distantPast
        case .open(let until, _): until
        case .halfOpen: nil
        }
    }
}

extension CircuitBreaker.Rejection {
    /// How long it lasts; 0 while a request is finding out.
    var milliseconds: Int64 { if case .open(let milliseconds) = self { milliseconds } else { 0 } }
}
