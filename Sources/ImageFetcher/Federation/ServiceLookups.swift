import NIOCore
import SocketLoops

/// SRV lookups: a cache of responses, and at most one query per domain, shared by all transfers that wait for it.
///
/// A query is charged to the account whose transfer started it (``NameLookups``). It is cancelled when no waiter
/// remains, so there are never more queries than waiting transfers. Used on the fetcher's thread only.
final class ServiceLookups {
    private struct Pending {
        let query: ServiceQuery
        let lookup: NameLookup
        let account: UInt32
        /// By increasing numbers.
        var waiters: [UInt64: Waiter] = [:]
    }

    private struct Waiter {
        let timer: Scheduled<Void>
        let completion: (ServiceResponse?) -> Void
    }

    /// Identifies a waiter, for ``cancel(_:)``.
    struct Wait {
        fileprivate let domain: String
        fileprivate let number: UInt64
    }

    private let loop: SocketLoop
    private let names: NameLookups
    private var cache = ServiceCache()
    private var pending: [String: Pending] = [:]
    private var lastNumber: UInt64 = 0

    init(loop: SocketLoop, names: NameLookups) { (self.loop, self.names) = (loop, names) }

    /// Looks up the SRV records of a domain. Returns nil if `completion` was called already.
    /// - Parameter completion: called once on the loop, possibly before this returns; with nil at `deadline`. Never
    ///   called after ``cancel(_:)`` and ``close()``.
    func lookUp(
        _ domain: String, for client: NameLookups.Client, until deadline: NIODeadline,
        _ environment: FetcherEnvironment, completion: @escaping (ServiceResponse?) -> Void
    ) -> Wait? {
        if let records = cache.records(of: domain, at: .now()) {
            completion(.records(records, seconds: 0))
            return nil
        }
        if pending[domain] == nil {
            let lookup = NameLookup(of: client, among: names)
            guard lookup.begin() else {
                completion(.busy(NameLookup.refusal))
                return nil
            }
            let query = ServiceQuery(
                nameServers: environment.nameServers, milliseconds: environment.serviceQueryTimeout, loop: loop
            ) { [weak self] in self?.completed(domain, $0) }
            pending[domain] = Pending(query: query, lookup: lookup, account: client.account)
            query.start(ServiceName.of(domain))
        }
        lastNumber += 1
        let number = lastNumber
        let wait = Wait(domain: domain, number: number)
        let timer = loop.assumeIsolated().scheduleTask(deadline: deadline) { [weak self] () -> Void in
            self?.cancel(wait)
            completion(nil)
        }
        pending[domain]?.waiters[number] = Waiter(timer: timer, completion: completion)
        environment.onWaiting(pending[domain]?.waiters.count ?? 0)
        return wait
    }

    /// Removes a waiter, whose completion is then not called. The last one cancels the query.
    func cancel(_ wait: Wait) {
        guard let waiter = pending[wait.domain]?.waiters.removeValue(forKey: wait.number) else { return }
        waiter.timer.cancel()
        guard let entry = pending[wait.domain], entry.waiters.isEmpty else { return }
        pending[wait.domain] = nil
        entry.query.close()
        entry.lookup.end()
    }

    private func completed(_ domain: String, _ response: ServiceResponse) {
        guard let ended = pending.removeValue(forKey: domain) else { return }
        ended.lookup.end()
        if case .records(let records, let seconds) = response {
            cache.insert(records, of: domain, for: seconds, account: ended.account, at: .now())
        }
        for (_, waiter) in ended.waiters.sorted(by: { $0.key < $1.key }) {
            waiter.timer.cancel()
            waiter.completion(response)
        }
    }

    func close() {
        for (_, entry) in pending {
            entry.query.close()
            entry.lookup.end()
            for waiter in entry.waiters.values { waiter.timer.cancel() }
        }
        pending = [:]
    }
}
