import CacheCore

/// An event that the store counts. The order is that of METRICS.
public enum StoreEvent: Int, CountedEvent {
    /// Entries that were torn, altered, not written by the store, or unreadable, and were removed (I5).
    case rejectedEntries
    /// Reads of intact entries, mostly without a free descriptor.
    case failedReads
    case evictedImages, evictedBytes, damagedLogins

    public var declaration: CounterDeclaration {
        switch self {
        case .rejectedEntries:
            .init(
                .store, "rejected_entries_total", unit: "entries",
                "Entries removed because they were torn, altered or unreadable.")
        case .failedReads:
            .init(.store, "failed_reads_total", unit: "reads", "Reads that failed although the entry was intact.")
        case .evictedImages: .init(.store, "evicted_images_total", unit: "images", "Images evicted from disk.")
        case .evictedBytes:
            .init(.store, "evicted_bytes_total", unit: "bytes", "Size of the images evicted from disk.")
        case .damagedLogins:
            .init(.store, "damaged_logins_total", unit: "users", "Logins ended because their files were damaged.")
        }
    }
}

public struct StoreStatistics: Sendable {
    /// Of all accounts, or of one.
    public var usage: Usage
    let trash: Usage
    let isCounted: Bool
    public let counters: Counters<StoreEvent>

    public init(
        usage: Usage = Usage(), trash: Usage = Usage(), isCounted: Bool = true, counters: Counters<StoreEvent> = .init()
    ) {
        (self.usage, self.trash, self.isCounted, self.counters) = (usage, trash, isCounted, counters)
    }

    public var metrics: [Metric] {
        [
            Metric("stored_images", .gauge, unit: "images", "Images on disk.", usage.images, .everyone),
            Metric(
                "stored_bytes", .gauge, unit: "bytes", "Size of the images on disk, in whole blocks.", usage.bytes,
                .everyone),
            Metric(
                "store_counted", .gauge, unit: "0 or 1",
                "1 once all images found at the start are in stored_images and stored_bytes.", isCounted ? 1 : 0),
            Metric("trash_bytes", .gauge, unit: "bytes", "Size of discarded images not deleted yet.", trash.bytes),
        ] + counters.metrics(in: .store)
    }
}
