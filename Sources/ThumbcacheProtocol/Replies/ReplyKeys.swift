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

/// The keys of EXPLAIN's reply and of the map `source` in it, in the order they are sent.
public enum ExplainKey: String, Sendable, CaseIterable {
    /// What GET does: `serve`, `refresh`, `revalidate`, `download`, `wait`, `render`, `fallback`, `none` or `fail`.
    case action
    /// The error reply of GET, or null.
    case error
    /// `memory` or `disk`; null if no image is held. The next four keys are null then, too.
    case held
    /// Scheme and host that the image came from, or `put`.
    case from
    /// As in META.
    case age, ttl, state
    /// Name of the origin, or null.
    case origin
    /// An array of maps with ``UpstreamKey``, in the order in which GET asks them.
    case upstreams
    /// Seconds until GET asks the origin, if something prevents it now; otherwise null.
    case retryIn = "retry-in"
    /// Requests that wait for the download in flight; null without one.
    case waiting
    /// Pixels of the request; null without SIZE.
    case size
    /// The map for the image that this one is rendered from, or null.
    case source
}

/// The keys of an upstream in EXPLAIN's reply, in the order they are sent.
public enum UpstreamKey: String, Sendable, CaseIterable {
    /// Scheme, host and port.
    case host
    /// `ready`, `missing`, `unusable`, `suspended`, `unauthorized` or `failed`.
    case state
    /// Seconds since the response that is remembered, or null.
    case age
    /// Seconds until it is requested again, or null.
    case retryIn = "retry-in"
}

/// The keys of HELLO's reply, in the order they are sent.
public enum HelloKey: String, Sendable, CaseIterable {
    case server, version, proto, id, mode, role, modules
}
