import Synchronization

/// Counts of all users together.
public typealias CacheCounters = Counters<CacheEvent>

/// What is counted of the domain. INFO shows most under the name of the case.
public enum CacheEvent: Int, CaseIterable, Sendable {
    /// Of caches that have ended. Each open one counts them under the lock that it holds anyway, and they are added
    /// when somebody asks: so cores do not fight over one line.
    case memoryHits
    case diskHits, staleServed, downloads, downloadFailures
    /// Downloads that asked only for an image that is no longer the one held.
    case revalidations
    /// Those of them that were answered with 304.
    case notModified
    case downloadsCancelled, puts, storeFailures
    /// Downloaded images that were not written, because too many waited for that already.
    case storesSkipped
    case logins, logouts, purges, endingsThatFailed
    /// Refreshes that brought an access token, and those that did not.
    case tokenRefreshes, tokenRefreshFailures
}

/// Counts since the start, one for each case of an enumeration whose raw values are its places, from 0 on.
public final class Counters<Event: CaseIterable & RawRepresentable & Sendable>: @unchecked Sendable
where Event.RawValue == Int {
    // Unchecked, because a pointer is not Sendable: what it points at is atomic.
    private let counts: UnsafeMutablePointer<Atomic<Int>>

    public init() {
        counts = .allocate(capacity: Event.allCases.count)
        for event in Event.allCases { (counts + event.rawValue).initialize(to: Atomic(0)) }
    }

    deinit {
        counts.deinitialize(count: Event.allCases.count)
        counts.deallocate()
    }

    package func count(_ event: Event, _ amount: Int = 1) {
        counts[event.rawValue].add(amount, ordering: .relaxed)
    }

    public subscript(event: Event) -> Int { counts[event.rawValue].load(ordering: .relaxed) }
}

extension RawRepresentable where RawValue == Int {
    /// Its name as INFO writes it: `disk_hits`.
    package var figure: String {
        "\(self)".reduce(into: "") { $0 += $1.isUppercase ? "_\($1.lowercased())" : "\($1)" }
    }
}
