import NIOCore
import SocketLoops

/// Asks who has the pictures of a domain's addresses: one question at a time for each domain, however many wait for it,
/// and none while an answer is good. A question counts for who asked first, as every look-up does (``NameLookups``);
/// it goes on when nobody waits any more, since somebody soon will.
///
/// Only the fetcher's thread touches it.
final class ServiceLookups {
    private struct UnderWay {
        let query: ServiceQuery
        let lookup: NameLookup
        let uid: UInt32
        var waiters: [Waiter] = []
    }

    private struct Waiter {
        let timer: Scheduled<Void>
        let number: UInt64
        let then: (ServiceAnswer?) -> Void
    }

    private let loop: SocketLoop
    private let names: NameLookups
    private var answers = ServiceAnswers()
    private var underWay: [String: UnderWay] = [:]
    private var lastNumber: UInt64 = 0

    init(loop: SocketLoop, names: NameLookups) { (self.loop, self.names) = (loop, names) }

    /// - Parameter then: is called once, on the loop, maybe at once; with nil when it is `deadline`. Never after
    ///   ``close()``.
    func find(
        _ domain: String, for asker: NameLookups.Asker, until deadline: NIODeadline,
        _ configuration: FetcherConfiguration, then: @escaping (ServiceAnswer?) -> Void
    ) {
        if let records = answers.records(of: domain, at: .now()) { return then(.records(records, seconds: 0)) }
        if underWay[domain] == nil {
            let lookup = NameLookup(of: asker, among: names)
            guard lookup.begin() else { return then(.busy(NameLookup.refusal)) }
            let query = ServiceQuery(
                nameServers: configuration.nameServers, milliseconds: configuration.longestServiceQuery, loop: loop
            ) { [weak self] in self?.answered(domain, $0) }
            underWay[domain] = UnderWay(query: query, lookup: lookup, uid: asker.uid)
            query.start(ServiceName.of(domain))
        }
        lastNumber += 1
        let number = lastNumber
        let timer = loop.assumeIsolated().scheduleTask(deadline: deadline) { [weak self] () -> Void in
            self?.giveUp(domain, number)
        }
        underWay[domain]?.waiters.append(Waiter(timer: timer, number: number, then: then))
    }

    private func answered(_ domain: String, _ answer: ServiceAnswer) {
        guard let ended = underWay.removeValue(forKey: domain) else { return }
        ended.lookup.end()
        if case .records(let records, let seconds) = answer {
            answers.keep(records, of: domain, for: seconds, uid: ended.uid, at: .now())
        }
        for waiter in ended.waiters {
            waiter.timer.cancel()
            waiter.then(answer)
        }
    }

    private func giveUp(_ domain: String, _ number: UInt64) {
        guard let index = underWay[domain]?.waiters.firstIndex(where: { $0.number == number }) else { return }
        underWay[domain]?.waiters.remove(at: index).then(nil)
    }

    func close() {
        for (_, entry) in underWay {
            entry.query.close()
            entry.lookup.end()
            for waiter in entry.waiters { waiter.timer.cancel() }
        }
        underWay = [:]
    }
}
