/// The header fields stored with an image: those that determine its freshness, which a 304 may update, and its
/// validators. At most 1 KiB each.
public struct StoredFields: Hashable, Sendable {
    /// All lines as one list.
    public var cacheControl: String?
    /// The first line.
    public var expires: String?
    /// All lines as one list.
    public var pragma: String?
    /// All lines as one list.
    public var vary: String?
    /// As received: weak, strong, or malformed.
    public var etag: String?
    public var lastModified: String?

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

    /// A list that is too long to store may contain any prohibition, so the strictest one is assumed.
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

    /// The fields after a 304: its fields replace the stored ones, others stay (RFC 9111 sections 3.2 and 4.3.4).
    func updated(by newer: StoredFields) -> StoredFields {
        StoredFields(
            cacheControl: newer.cacheControl ?? cacheControl, expires: newer.expires ?? expires,
            pragma: newer.pragma ?? pragma, vary: newer.vary ?? vary, etag: newer.etag ?? etag,
            lastModified: newer.lastModified ?? lastModified)
    }
}

extension StoredFields {
    func hasValidator(now: Int64) -> Bool { etag != nil || modifiedSince(now: now) != nil }

    /// Last-Modified as received, if it is a valid date; origins ignore an invalid If-Modified-Since.
    func modifiedSince(now: Int64) -> String? {
        lastModified.flatMap { HTTPDate.seconds($0, now: now) == nil ? nil : $0 }
    }

    /// Whether a 304 with those fields is about the image with these (RFC 9111 section 4.3.4): its entity tag or,
    /// without one, its Last-Modified is the same. A 304 with neither refers to the validators of the request.
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

    /// The part that weak comparison uses, as in If-None-Match (RFC 9110 sections 8.8.3.2 and 13.1.2).
    private static func opaqueTag(_ tag: String) -> Substring { tag.hasPrefix("W/") ? tag.dropFirst(2) : tag[...] }
}
