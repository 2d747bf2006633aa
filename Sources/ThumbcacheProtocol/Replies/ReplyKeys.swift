/// The keys of a receipt, the reply to LOGOUT and PURGE, in the order they are sent.
public enum ReceiptKey: String, Sendable, CaseIterable {
    /// Caches that were ended or purged.
    case users
    /// Images and bytes in them; null if not counted yet after a start.
    case images, bytes
    /// Cancelled downloads.
    case cancelled
    /// Remaining sessions.
    case sessions
    case epoch
}

/// The keys of GET's reply with META, in the order they are sent; STAT of a profile has all but `image`.
public enum MetaKey: String, Sendable, CaseIterable {
    case image
    /// SHA-256 of the image's bytes, lower-case hexadecimal.
    case digest
    case type
    /// The length of the file, in bytes.
    case length
    case width, height
    /// Seconds since the image was downloaded, revalidated or stored.
    case age
    /// Seconds until the image is stale; negative if stale, null if it never becomes stale.
    case ttl
    /// `fresh` or `stale`.
    case state
    /// `memory`, `disk`, `origin`, `revalidated`, `put` or `fallback`.
    case source
    case epoch
    /// Digest of the source image that this one was resized from; null if it was not resized.
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
