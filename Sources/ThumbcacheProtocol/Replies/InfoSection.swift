/// The sections of INFO, in order.
public enum InfoSection: String, CaseIterable, Sendable {
    case server, clients, memory, stats, cache, store, fetch, sessions, purge, keyspace

    /// Names in a request that stand for all sections.
    public static let everything = ["all", "default", "everything"]
}
