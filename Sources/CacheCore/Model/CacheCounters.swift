import Synchronization

/// Counts of all users together.
public typealias CacheCounters = Counters<CacheEvent>

/// What is counted of the domain. INFO shows most under the name of the case.
public enum CacheEvent: Int, CaseIterable, Sendable {
    /// Of caches that have ended. Each open one counts them under the lock that it holds anyway, and they are added
    /// when somebody asks: so cores do not fight over one line.
    case memoryHits
    /// Pictures of the operator's choice, where nobody had one.
    case fallbacksServed
    case diskHits, staleServed, downloads, downloadFailures
    /// Downloads that asked only for an image that is no longer the one held.
    case revalidations
    /// Those of them that were answered with 304.
    case notModified
    case downloadsCancelled, puts, storeFailures
    /// Downloaded images that were not written, because too many waited for that already.
    case storesSkipped
    /// Pictures that were made in another size, and those that could not be.
    case renditions, renditionFailures
    case logins, logouts, purges, failedInvalidations
    /// Refreshes that brought an access token, and those that did not.
    case tokenRefreshes, tokenRefreshFailures
    /// Events that were written to subscribers, and subscribers that did not take them.
    case eventsTold, subscribersDropped
}

/// Counts since the start, one for each case of an enumeration whose raw values are its places, from 0 on.
public final class Counters<Event: CaseIterable & RawRepresentable & Sendable>: Sendable where Event.RawValue == Int {
    private let counts = AtomicCounts(Event.allCases.count)

    public init() {}

    package func count(_ event: Event, _ amount: Int = 1) { counts.add(amount, at: event.rawValue) }

    public subscript(event: Event) -> Int { counts[event.rawValue] }
}

/// So many counts, from 0 on.
package final class AtomicCounts: @unchecked Sendable {
    // Unchecked, because a pointer is not Sendable: what it points at is atomic.
    private let counts: UnsafeMutableBufferPointer<Atomic<Int>>

    package init(_ count: Int) {
        counts = .allocate(capacity: count)
        for index in 0..<count { counts.initializeElement(at: index, to: Atomic(0)) }
    }

    deinit {
        counts.deinitialize()
        counts.deallocate()
    }

    package func add(_ amount: Int, at index: Int) { counts[index].add(amount, ordering: .relaxed) }

    /// The same where one thread alone ever adds to this count: it costs no locked instruction.
    package func addAlone(_ amount: Int, at index: Int) {
        counts[index].store(counts[index].load(ordering: .relaxed) &+ amount, ordering: .relaxed)
    }

    package subscript(index: Int) -> Int { counts[index].load(ordering: .relaxed) }
}

extension RawRepresentable where RawValue == Int {
    /// Its name as INFO writes it: `disk_hits`.
    package var figure: String {
        "\(self)".reduce(into: "") { $0 += $1.isUppercase ? "_\($1.lowercased())" : "\($1)" }
    }
}
