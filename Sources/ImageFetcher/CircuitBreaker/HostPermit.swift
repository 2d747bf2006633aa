import NIOCore
import ThumbnailCache

/// Leave for one request of a uid to one host, and what the scheduler is told for it: that there is a connection, as
/// soon as there is one, and at the end what the request showed.
struct HostPermit {
    private let scheduler: TransferScheduler
    private let host: HostKey
    private let uid: UInt32
    private let policy: BreakerPolicy
    private var permit: CircuitBreakers.Permit

    /// Throws where a breaker is open. Whoever has leave calls ``end(_:at:)`` once.
    init(
        for host: HostKey, of uid: UInt32, policy: BreakerPolicy, from scheduler: TransferScheduler, at now: NIODeadline
    ) throws(CircuitBreaker.Rejection) {
        permit = try scheduler.ask(host, for: uid, at: now)
        (self.scheduler, self.host, self.uid, self.policy) = (scheduler, host, uid, policy)
    }

    /// The request has a connection to be sent over. Costs nothing unless others wait for it.
    mutating func connected(at now: NIODeadline) {
        if permit.isProbeForAll { scheduler.connected(host, for: uid, with: &permit, at: now) }
    }

    func end(_ finding: CircuitBreakers.Finding, at now: NIODeadline) {
        scheduler.learn(finding, of: host, for: uid, from: permit, policy: policy, at: now)
    }
}
