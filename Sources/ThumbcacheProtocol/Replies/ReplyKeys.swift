/// The keys of a receipt, the reply to LOGOUT and PURGE, in the order they are sent.
public enum ReceiptKey: String, Sendable, CaseIterable {
    /// Caches ended or emptied.
    case users
    /// What there was; null while not yet counted after a start.
    case images, bytes
    /// Downloads stopped.
    case cancelled
    /// Sessions that remain.
    case sessions
    case epoch
}

/// The keys of GET's reply with META, in the order they are sent; STAT of a profile has all but `image`.
public enum MetaKey: String, Sendable, CaseIterable {
    case image
    /// SHA-256 of the image's bytes, lower-case hexadecimal.
    case digest
    /// Media type.
    case type
    /// Bytes.
    case length
    /// Pixels.
    case width, height
    /// Seconds.
    case age
    /// Seconds left, negative if stale, null if none.
    case ttl
    /// `fresh` or `stale`.
    case state
    /// `memory`, `disk`, `origin`, `revalidated`, `put` or `fallback`.
    case source
    case epoch
    /// Digest of the picture that this one was made from in another size; null for one that is as it came.
    case rendered

    /// The keys that STAT of a profile sends.
    public static let stat = allCases.filter { $0 != .image }
}

/// The keys of STAT's reply for a user, in the order they are sent.
public enum StatKey: String, Sendable, CaseIterable {
    case images, bytes, sessions
    /// Name of the origin, or null.
    case origin
    /// Seconds since 1970.
    case loggedInAt = "logged-in-at"
    case epoch
}

/// The keys of HELLO's reply, in the order they are sent.
public enum HelloKey: String, Sendable, CaseIterable {
    case server, version, proto, id, mode, role, modules
}
