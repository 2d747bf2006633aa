import NIOCore
import SocketLoops

/// Asks who has the pictures of a domain's addresses: one question at a time for each domain, however many wait for it,
/// and none while an answer is good. A question counts for who asked first, as every look-up does (``NameLookups``).
/// It ends with the last who waits for it: so there are never more questions, nor sockets of theirs, than transfers that
/// wait.
///
/// Only the fetcher's thread touches it.
final class ServiceLookups {
    private struct UnderWay {
        let query: ServiceQuery
        let lookup: NameLookup
        let uid: UInt32
        /// By their numbers, which grow.
        var waiters: [UInt64: Waiter] = [:]
    }

    private struct Waiter {
        let timer: Scheduled<Void>
        let then: (ServiceAnswer?) -> Void
    }

    /// What whoever waits leaves with.
    struct Wait {
        fileprivate let domain: String
        fileprivate let number: UInt64
    }

    private let loop: SocketLoop
    private let names: NameLookups
    private var answers = ServiceAnswers()
    private var underWay: [String: UnderWay] = [:]
    private var lastNumber: UInt64 = 0

    init(loop: SocketLoop, names: NameLookups) { (self.loop, self.names) = (loop, names) }

    /// - Parameter then: is called once, on the loop, maybe at once; with nil when it is `deadline`. Never after
    ///   ``leave(_:)`` and ``close()``.
    /// - Returns: nil where it was called at once.
    func find(
        _ domain: String, for asker: NameLookups.Asker, until deadline: NIODeadline,
        _ configuration: FetcherConfiguration, then: @escaping (ServiceAnswer?) -> Void
    ) -> Wait? {
        if let records = answers.records(of: domain, at: .now()) {
            then(.records(records, seconds: 0))
            return nil
        }
        if underWay[domain] == nil {
            let lookup = NameLookup(of: asker, among: names)
            guard lookup.begin() else {
                then(.busy(NameLookup.refusal))
                return nil
            }
            let query = ServiceQuery(
                nameServers: configuration.nameServers, milliseconds: configuration.longestServiceQuery, loop: loop
            ) { [weak self] in self?.answered(domain, $0) }
            underWay[domain] = UnderWay(query: query, lookup: lookup, uid: asker.uid)
            query.start(ServiceName.of(domain))
        }
        lastNumber += 1
        let number = lastNumber
        let wait = Wait(domain: domain, number: number)
        let timer = loop.assumeIsolated().scheduleTask(deadline: deadline) { [weak self] () -> Void in
            self?.leave(wait)
            then(nil)
        }
        underWay[domain]?.waiters[number] = Waiter(timer: timer, then: then)
        configuration.onWaiting(underWay[domain]?.waiters.count ?? 0)
        return wait
    }

    /// Nothing is told any more to who does. What has been told already needs none.
    func leave(_ wait: Wait) {
        guard let waiter = underWay[wait.domain]?.waiters.removeValue(forKey: wait.number) else { return }
        waiter.timer.cancel()
        guard let entry = underWay[wait.domain], entry.waiters.isEmpty else { return }
        underWay[wait.domain] = nil
        entry.query.close()
        entry.lookup.end()
    }

    private func answered(_ domain: String, _ answer: ServiceAnswer) {
        guard let ended = underWay.removeValue(forKey: domain) else { return }
        ended.lookup.end()
        if case .records(let records, let seconds) = answer {
            answers.keep(records, of: domain, for: seconds, uid: ended.uid, at: .now())
        }
        for (_, waiter) in ended.waiters.sorted(by: { $0.key < $1.key }) {
            waiter.timer.cancel()
            waiter.then(answer)
        }
    }

    func close() {
        for (_, entry) in underWay {
            entry.query.close()
            entry.lookup.end()
            for waiter in entry.waiters.values { waiter.timer.cancel() }
        }
        underWay = [:]
    }
}
