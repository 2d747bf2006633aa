/// A section of INFO, in the order in which INFO lists them.
public enum InfoSection: String, CaseIterable, Sendable {
    case server, clients, memory, stats, cache, store, fetch, sessions, purge, keyspace

    /// Words of a request that stand for all sections.
    public static let everything = ["all", "default", "everything"]
}
