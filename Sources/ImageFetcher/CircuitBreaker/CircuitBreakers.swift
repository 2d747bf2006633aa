import CacheCore
import HelperProtocol
import NIOCore
import Origins

/// A host, as one origin reaches it with its own authorities, proxy and timeouts. A failure with one origin's settings
/// says nothing about the same host with another's.
struct HostKey: Hashable, Sendable {
    let origin: String
    /// Scheme, host and port, as in ``WebURL/authority``.
    let authority: String

    init(origin: String, authority: String) { (self.origin, self.authority) = (origin, authority) }

    /// The name servers of a domain. A service's name begins with an underscore, which no authority does.
    init(origin: String, namedBy domain: String) { self.init(origin: origin, authority: ServiceName.of(domain)) }

    /// The name for error messages. A queried domain is part of a user's mail address and is not shown.
    var displayName: String { authority.hasPrefix("_") ? "the name server of the address's domain" : authority }
}

/// The circuit breakers of all hosts and accounts.
///
/// A connection failure concerns all accounts, because no account can cause it by what it requests: each host has one
/// breaker for connections. A failure after the connection may concern one account only (429 for its token, 500 for one
/// image), and opens only that account's breaker (F68). If several accounts met such failures with no success between,
/// the first failure opens an account's breaker. A shared breaker for them could be kept open for everyone by a user
/// with two accounts.
///
/// A value without effects. Hosts that work are not stored. Redirects can name any number of hosts, so the tables are
/// bounded, and the account with the most entries loses one first (I8).
struct CircuitBreakers: Sendable {
    static let maximumHosts = 1_024
    /// Maximum number of breakers of one account.
    static let maximumPerAccount = 64
    /// Maximum number of breakers of all accounts together.
    static let maximumOwnBreakers = 8_192
    /// Maximum number of accounts of one host in ``Host/mayNotProbeUntil``.
    static let maximumDelayedProbers = 256

    /// The observed state of a request's host.
    enum Finding: Equatable, Sendable {
        /// It responds, with or without an image.
        case works
        /// It rejects a credential. Such requests are limited like failures, but say nothing about other accounts.
        case refused
        /// No connection: no address, no open port, or no TLS.
        case unreachable
        /// After connecting, it closes the connection early, times out, or responds with 429 or 5xx.
        /// `retryAfter`: milliseconds that it requested.
        case failed(retryAfter: Int64?)
        /// Unknown: the request was cancelled, or failed for a local reason.
        case nothing
    }

    struct Permit: Equatable, Sendable {
        fileprivate(set) var shared = CircuitBreaker.Permit.usual
        fileprivate(set) var own = CircuitBreaker.Permit.usual

        /// Whether all accounts wait until this request has connected to the host or has failed.
        var isProbeForAll: Bool { shared == .probe }
    }

    /// A change of the breaker of an account, or of the shared breaker if the account is nil.
    enum Change: Equatable, Sendable {
        case opened(for: UInt32?)
        case closed(for: UInt32?)

        fileprivate static func all(for account: UInt32?, opens: Bool, closes: Bool) -> [Self] {
            (opens ? [.opened(for: account)] : []) + (closes ? [.closed(for: account)] : [])
        }
    }

    private var hosts: [HostKey: Host] = [:]
    private var own: [UInt32: [HostKey: CircuitBreaker]] = [:]
    private var ownCount = 0

    var count: (hosts: Int, own: Int) { (hosts.count, ownCount) }

    /// Why a request of the account to the host would not be sent now; nil if it would.
    func rejection(of host: HostKey, for account: UInt32, at now: NIODeadline) -> CircuitBreaker.Rejection? {
        hosts[host]?.rejection(for: account, at: now) ?? own[account]?[host]?.rejection(at: now)
    }

    /// Acquires a permit for a request, whose end must be reported with ``record(_:of:for:from:at:rules:draw:)``.
    mutating func acquirePermit(
        for host: HostKey, account: UInt32, at now: NIODeadline
    ) throws(CircuitBreaker.Rejection) -> Permit {
        // Both breakers are checked before either changes: the end of a probe that is not sent would never be reported.
        if let rejection = rejection(of: host, for: account, at: now) { throw rejection }
        return Permit(
            shared: try hosts[host]?.breaker.acquirePermit(at: now) ?? .usual,
            own: try own[account]?[host]?.acquirePermit(at: now) ?? .usual)
    }

    /// Records that a request has a connection. The shared breaker closes before the response: a slow request would
    /// keep all others out meanwhile, and longer if it is cancelled.
    mutating func connected(_ host: HostKey, for account: UInt32, with permit: inout Permit) -> [Change] {
        guard permit.isProbeForAll, var shared = hosts[host] else { return [] }
        let isClosed = shared.connected(with: permit.shared)
        permit.shared = .usual
        store(shared, of: host)
        return isClosed ? [.closed(for: nil)] : []
    }

    /// Returns the breakers that changed.
    @discardableResult
    mutating func record(
        _ finding: Finding, of host: HostKey, for account: UInt32, from permit: Permit, at now: NIODeadline,
        rules: CircuitBreaker.Rules, draw: Backoff.Draw
    ) -> [Change] {
        var shared = hosts[host] ?? Host(account: account)
        let wasClosed = shared.breaker.isClosed
        let opens = shared.record(finding, of: account, from: permit.shared, at: now, rules: rules, draw: draw)
        var changes = Change.all(for: nil, opens: opens, closes: !wasClosed && shared.breaker.isClosed)
        store(shared, of: host)

        var rules = rules
        if shared.isBrokenForSeveral(atLeast: rules.failures) { rules.failures = 1 }
        var breaker = own[account]?[host] ?? CircuitBreaker()
        let wasOwnClosed = breaker.isClosed
        let opensOwn = breaker.record(finding.ofResponse, from: permit.own, at: now, rules: rules, draw: draw)
        changes += Change.all(for: account, opens: opensOwn, closes: !wasOwnClosed && breaker.isClosed)
        store(breaker, of: host, for: account)
        return changes
    }

    /// Adds the breakers that are open, and for how long, to statistics that have none of them yet.
    func addFigures(to figures: inout FetcherStatistics, at now: NIODeadline) {
        for (key, host) in hosts {
            guard let left = host.breaker.rejection(at: now)?.milliseconds else { continue }
            figures.hostsOpen += 1
            figures.origins[key.origin, default: .init()].add(retryIn: left, isForAll: true)
        }
        for (key, breaker) in own.values.joined() {
            guard let left = breaker.rejection(at: now)?.milliseconds else { continue }
            figures.accountsOpen += 1
            figures.origins[key.origin, default: .init()].add(retryIn: left, isForAll: false)
        }
    }

    private mutating func store(_ host: Host, of key: HostKey) {
        guard !host.isInitial else {
            hosts[key] = nil
            return
        }
        if hosts[key] == nil, hosts.count >= Self.maximumHosts { forgetHost() }
        if hosts[key] != nil || hosts.count < Self.maximumHosts { hosts[key] = host }
    }

    private mutating func store(_ breaker: CircuitBreaker, of key: HostKey, for account: UInt32) {
        guard !breaker.isInitial else { return forget(key, of: account) }
        if own[account]?[key] == nil {
            let ofAccount = own[account]?.count ?? 0
            if ofAccount >= Self.maximumPerAccount {
                forgetBreaker(of: account)
            } else if ownCount >= Self.maximumOwnBreakers, let most = own.max(by: { $0.value.count < $1.value.count }) {
                forgetBreaker(of: most.key)
            }
            guard own[account]?.count ?? 0 < Self.maximumPerAccount, ownCount < Self.maximumOwnBreakers else { return }
            ownCount += 1
        }
        own[account, default: [:]][key] = breaker
    }

    private mutating func forget(_ key: HostKey, of account: UInt32) {
        guard own[account]?.removeValue(forKey: key) != nil else { return }
        ownCount -= 1
        if own[account]?.isEmpty == true { own[account] = nil }
    }

    /// Removes the breaker of an account that would reopen first.
    private mutating func forgetBreaker(of account: UInt32) {
        if let first = Self.shortest(own[account] ?? [:], \.self) { forget(first, of: account) }
    }

    /// Removes the host that would be retried first, among those of the account that caused the most entries.
    private mutating func forgetHost() {
        var counts: [UInt32: Int] = [:]
        for host in hosts.values where host.breaker.expiry != nil { counts[host.account, default: 0] += 1 }
        guard let most = counts.max(by: { $0.value < $1.value })?.key else { return }
        if let first = Self.shortest(hosts.filter { $0.value.account == most }, \.breaker) { hosts[first] = nil }
    }

    private static func shortest<Value>(_ all: [HostKey: Value], _ breaker: (Value) -> CircuitBreaker) -> HostKey? {
        all.compactMap { key, value in breaker(value).expiry.map { (key, $0) } }.min { $0.1 < $1.1 }?.0
    }
}

/// The state of one host that concerns all accounts.
private struct Host {
    /// The account whose request created the entry.
    let account: UInt32
    var breaker = CircuitBreaker()
    /// Failures in a row after a connection, the first account that met one, and whether another account did, too.
    private var failures: (count: Int, first: UInt32?, areOfSeveral: Bool) = (0, nil, false)
    /// Uids that cancelled a probe before it connected, and until when they may not probe.
    private var mayNotProbeUntil: [UInt32: NIODeadline] = [:]

    init(account: UInt32) { self.account = account }

    var isInitial: Bool { breaker.isInitial && failures.count == 0 }

    func isBrokenForSeveral(atLeast count: Int) -> Bool { failures.areOfSeveral && failures.count >= count }

    /// The breaker's rejection, or that of an account that may not probe: an account that starts each probe and cancels
    /// it would keep the breaker open for all. It may not probe for as long as the breaker would stay open after a
    /// failed probe.
    func rejection(for account: UInt32, at now: NIODeadline) -> CircuitBreaker.Rejection? {
        if let rejection = breaker.rejection(at: now) { return rejection }
        guard case .open = breaker.state, let until = mayNotProbeUntil[account], until > now else { return nil }
        return .open(milliseconds: until.millisecondsLeft(at: now))
    }

    mutating func connected(with permit: CircuitBreaker.Permit) -> Bool {
        let isClosed = breaker.close(from: permit)
        if isClosed { mayNotProbeUntil = [:] }
        return isClosed
    }

    mutating func record(
        _ finding: CircuitBreakers.Finding, of account: UInt32, from permit: CircuitBreaker.Permit, at now: NIODeadline,
        rules: CircuitBreaker.Rules, draw: Backoff.Draw
    ) -> Bool {
        switch finding {
        case .works, .refused: failures = (0, nil, false)
        case .unreachable, .nothing: break
        case .failed:
            let first = failures.first ?? account
            failures = (failures.count + 1, first, failures.areOfSeveral || first != account)
        }
        let attempt = breaker.probedAttempt
        let opens = breaker.record(finding.ofConnection, from: permit, at: now, rules: rules, draw: draw)
        guard permit == .probe, let attempt else { return opens }
        guard finding == .nothing else {
            mayNotProbeUntil = [:]
            return opens
        }
        mayNotProbeUntil = mayNotProbeUntil.filter { $0.value > now }
        if mayNotProbeUntil.count < CircuitBreakers.maximumDelayedProbers {
            mayNotProbeUntil[account] = now + .milliseconds(rules.backoff.wait(attempt: attempt, draw: draw))
        }
        return opens
    }
}

extension CircuitBreakers.Finding {
    fileprivate var ofConnection: CircuitBreaker.Verdict {
        switch self {
        case .works, .refused, .failed: .works
        case .unreachable: .failed(retryAfter: nil)
        case .nothing: .nothing
        }
    }

    fileprivate var ofResponse: CircuitBreaker.Verdict {
        switch self {
        case .works: .works
        case .refused: .failed(retryAfter: nil)
        case .failed(let retryAfter): .failed(retryAfter: retryAfter)
        case .unreachable, .nothing: .nothing
        }
    }
}

extension CircuitBreaker {
    /// When the breaker's entry may be removed; nil while a probe is in flight.
    fileprivate var expiry: NIODeadline? {
        switch state {
        case .closed: .distantPast
        case .open(let until, _): until
        case .halfOpen: nil
        }
    }
}
