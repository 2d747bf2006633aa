import Synchronization
import ThumbnailCache

/// What the store has met since it was made.
final class Counters: Sendable {
    let rejectedEntries = Atomic<Int>(0)
    let failedReads = Atomic<Int>(0)
    let evictedImages = Atomic<Int>(0)
    let evictedBytes = Atomic<Int>(0)
    let damagedLogins = Atomic<Int>(0)
}

/// A snapshot for INFO and METRICS.
public struct DiskStoreStatistics: Sendable, Equatable {
    /// Images and their bytes on disk, as far as counted.
    public var usage: Usage
    /// Whether everything that was there at the start is counted by now.
    public var isCounted: Bool
    /// What waits to be deleted.
    public var trash: Usage
    /// Entries that were torn, tampered with, planted or unreadable, and were removed (I5).
    public var rejectedEntries: Int
    /// Reads that failed without anything being wrong with the entry, for want of descriptors most likely.
    public var failedReads: Int
    public var evictedImages: Int
    public var evictedBytes: Int
    /// Log-ins ended because their files were damaged.
    public var damagedLogins: Int
}
