/// The header fields of an answer that are kept with its image: those that a later 304 may update and that say how long
/// it is fresh, and the validators to ask with. Each has at most 1 KiB.
public struct StoredFields: Hashable, Sendable {
    /// All lines as one list.
    public var cacheControl: String?
    /// The first line.
    public var expires: String?
    /// All lines as one list.
    public var pragma: String?
    /// All lines as one list.
    public var vary: String?
    /// As it came: weak, strong, or not even well formed.
    public var etag: String?
    public var lastModified: String?

    /// Bytes of one value.
    public static var longest: Int { 1_024 }

    public init(
        cacheControl: String? = nil, expires: String? = nil, pragma: String? = nil, vary: String? = nil,
        etag: String? = nil, lastModified: String? = nil
    ) {
        self.cacheControl = cacheControl
        self.expires = expires
        self.pragma = pragma
        self.vary = vary
        self.etag = etag
        self.lastModified = lastModified
    }

    /// A list that is too long to keep might forbid anything, so it is taken to forbid all that it could.
    init(_ headers: ResponseHeaders) {
        cacheControl = headers["cache-control"].map { Self.fits($0) ? $0 : "no-store" }
        vary = headers["vary"].map { Self.fits($0) ? $0 : "*" }
        pragma = headers["pragma"].flatMap { Self.fits($0) ? $0 : nil }
        expires = headers.fields["expires"]?.first.map { Self.fits($0) ? $0 : "" }
        etag = Self.validator(headers, "etag")
        lastModified = Self.validator(headers, "last-modified")
    }

    private static func fits(_ value: String) -> Bool { value.utf8.count <= longest }

    private static func validator(_ headers: ResponseHeaders, _ name: String) -> String? {
        headers.fields[name]?.first.flatMap { !$0.isEmpty && fits($0) ? $0 : nil }
    }

    /// These fields once a 304 has confirmed the image: what it names replaces what was stored, what it does not name
    /// stays (RFC 9111 sections 3.2 and 4.3.4).
    func updated(by newer: StoredFields) -> StoredFields {
        StoredFields(
            cacheControl: newer.cacheControl ?? cacheControl, expires: newer.expires ?? expires,
            pragma: newer.pragma ?? pragma, vary: newer.vary ?? vary, etag: newer.etag ?? etag,
            lastModified: newer.lastModified ?? lastModified)
    }
}

extension StoredFields {
    /// Whether there is anything to ask with: an entity tag, or a date of the last change that is one.
    func hasValidator(now: Int64) -> Bool { etag != nil || modifiedSince(now: now) != nil }

    /// Last-Modified as it came, if it is a date: else If-Modified-Since means nothing (RFC 9110 section 13.1.3).
    func modifiedSince(now: Int64) -> String? {
        lastModified.flatMap { HTTPDate.seconds($0, now: now) == nil ? nil : $0 }
    }

    /// Whether a 304 with those fields speaks of the image that has these (RFC 9111 section 4.3.4): its entity tag is
    /// the same, or, without one, its date of the last change. One that names neither answers what it was asked.
    func areConfirmed(by answer: StoredFields, now: Int64) -> Bool {
        if let confirmed = answer.etag, let etag { return Self.opaqueTag(confirmed) == Self.opaqueTag(etag) }
        if answer.etag == nil, answer.lastModified == nil { return true }
        return Self.isSameDate(answer.lastModified, lastModified, now: now)
    }

    private static func isSameDate(_ left: String?, _ right: String?, now: Int64) -> Bool {
        guard let left, let right else { return false }
        let date = HTTPDate.seconds(left, now: now)
        return date != nil && date == HTTPDate.seconds(right, now: now)
    }

    /// What weak comparison looks at, which is the comparison of If-None-Match (RFC 9110 sections 8.8.3.2 and 13.1.2).
    private static func opaqueTag(_ tag: String) -> Substring { tag.hasPrefix("W/") ? tag.dropFirst(2) : tag[...] }
}
