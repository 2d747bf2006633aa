import ThumbnailCache

/// How an ``ThumbnailCache/ImageRecord`` lies in an entry: a version, then fields of fixed size, then those that vary.
package enum ImageRecordCoding {
    private static let version: UInt8 = 1
    /// Longest a record can be: fixed fields and three texts of 65,535 bytes.
    static let longest = 96 + 3 * (2 + 0xFFFF)
    /// A validator longer than this is dropped: it is a hint, and an origin should not fill the disk with it.
    private static let longestValidator = 1024

    private struct Present: OptionSet {
        let rawValue: UInt8
        static let url = Present(rawValue: 1)
        static let lifetime = Present(rawValue: 2)
        static let etag = Present(rawValue: 4)
        static let lastModified = Present(rawValue: 8)
        static let all: Present = [.url, .lifetime, .etag, .lastModified]
    }

    /// nil when the URL is longer than 65,535 bytes.
    package static func encode(_ record: ImageRecord) -> [UInt8]? {
        var present: Present = []
        let etag = record.etag.flatMap { $0.utf8.count <= longestValidator ? $0 : nil }
        let lastModified = record.lastModified.flatMap { $0.utf8.count <= longestValidator ? $0 : nil }
        if case .url = record.provenance { present.insert(.url) }
        if record.freshness.lifetime != nil { present.insert(.lifetime) }
        if etag != nil { present.insert(.etag) }
        if lastModified != nil { present.insert(.lastModified) }

        var writer = ByteWriter(capacity: 256)
        writer.integer(version)
        writer.integer(present.rawValue)
        writer.integer(record.shape.kind.rawValue)
        writer.integer(record.shape.width)
        writer.integer(record.shape.height)
        writer.append(record.digest.bytes)
        writer.integer(record.freshness.storedAt)
        writer.integer(record.freshness.initialAge)
        writer.integer(record.freshness.lifetime ?? 0)
        writer.integer(record.freshness.staleWhileRevalidate)
        writer.integer(record.freshness.staleIfError)
        if case .url(let url) = record.provenance { writer.text(url) }
        if let etag { writer.text(etag) }
        if let lastModified { writer.text(lastModified) }
        return writer.isTooLong ? nil : writer.bytes
    }

    /// nil unless the bytes are exactly one record of this version.
    package static func decode(_ bytes: UnsafeRawBufferPointer) -> ImageRecord? {
        var reader = ByteReader(bytes)
        guard reader.integer(UInt8.self) == version,
            let present = reader.integer(UInt8.self).map(Present.init(rawValue:)), present.isSubset(of: .all),
            let kind = reader.integer(UInt8.self).flatMap(ImageKind.init(rawValue:)),
            let width = reader.integer(UInt32.self), let height = reader.integer(UInt32.self),
            let digest = reader.take(32).flatMap({ ImageDigest($0) }),
            let storedAt = reader.integer(Int64.self), let initialAge = reader.integer(Int64.self),
            let lifetime = reader.integer(Int64.self), present.contains(.lifetime) || lifetime == 0,
            let whileRevalidate = reader.integer(Int64.self), let ifError = reader.integer(Int64.self)
        else { return nil }

        var provenance = Provenance.put
        if present.contains(.url) {
            guard let url = reader.text() else { return nil }
            provenance = .url(url)
        }
        var record = ImageRecord(
            shape: ImageShape(kind: kind, width: width, height: height), digest: digest, provenance: provenance,
            freshness: Freshness(
                storedAt: storedAt, initialAge: initialAge, lifetime: present.contains(.lifetime) ? lifetime : nil,
                staleWhileRevalidate: whileRevalidate, staleIfError: ifError))
        if present.contains(.etag) {
            guard let etag = reader.text() else { return nil }
            record.etag = etag
        }
        if present.contains(.lastModified) {
            guard let lastModified = reader.text() else { return nil }
            record.lastModified = lastModified
        }
        return reader.isAtEnd ? record : nil
    }
}
