/// What the store counts from its start on. INFO shows each under the name of the case.
public enum StoreEvent: Int, CaseIterable, Sendable {
    /// Entries that were torn, tampered with, planted or unreadable, and were removed (I5).
    case rejectedEntries
    /// Reads that failed without anything being wrong with the entry, for want of descriptors most likely.
    case failedReads
    case evictedImages, evictedBytes
    /// Log-ins ended because their files were damaged.
    case damagedLogins
}
