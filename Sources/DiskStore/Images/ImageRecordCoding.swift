import CacheCore

/// How an ``CacheCore/ImageRecord`` lies in an entry: a version, then fields of fixed size, then those that vary.
/// A record of another version is none, and its entry so a miss.
///
/// The second version knew of no tokens. It is still read where no answer can have varied by them: where none named
/// Vary or redirected.
package enum ImageRecordCoding {
    private static let version: UInt8 = 3

    /// Which of the parts that may be missing are there.
    private struct Present: OptionSet {
        let rawValue: UInt16
        static let url = Present(rawValue: 1)
        static let redirectedTo = Present(rawValue: 2)
        static let lifetime = Present(rawValue: 4)
        static let tokenFamily = Present(rawValue: 0x200)
        /// Nothing lies there for it.
        static let standIn = Present(rawValue: 0x400)
        static let rendered = Present(rawValue: 0x800)
        static let all = Present(rawValue: 0xFFF)
        /// What a record of the second version may have.
        static let second = all.subtracting([.tokenFamily, .standIn, .rendered, .redirectedTo, .text(3)])

        /// One of the six header fields, in the order in which they lie.
        static func text(_ index: Int) -> Present { Present(rawValue: 8 << UInt16(index)) }
    }

    /// nil when a URL is longer than 65,535 bytes.
    package static func encode(_ record: ImageRecord) -> [UInt8]? {
        var present: Present = []
        let url: String? = if case .url(let provenance) = record.provenance { provenance } else { nil }
        if url != nil { present.insert(.url) }
        if record.redirectedTo != nil { present.insert(.redirectedTo) }
        if record.freshness.lifetime != nil { present.insert(.lifetime) }
        if record.tokenFamily != nil { present.insert(.tokenFamily) }
        if record.isStandIn { present.insert(.standIn) }
        if record.rendered != nil { present.insert(.rendered) }
        let fields = record.fields
        var texts: [String] = []
        for (index, text) in [
            fields.cacheControl, fields.expires, fields.pragma, fields.vary, fields.etag, fields.lastModified,
        ].enumerated() {
            // One that is longer than the cache keeps is left out.
            guard let text, text.utf8.count <= StoredFields.longest else { continue }
            present.insert(.text(index))
            texts.append(text)
        }

        var writer = ByteWriter(capacity: 512)
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
        if let tokenFamily = record.tokenFamily { writer.integer(tokenFamily) }
        if let rendered = record.rendered { writer.append(rendered.bytes) }
        if let url { writer.text(url) }
        if let redirectedTo = record.redirectedTo { writer.text(redirectedTo) }
        for text in texts { writer.text(text) }
        return writer.isTooLong ? nil : writer.bytes
    }

    /// nil unless the bytes are exactly one record of this version, or one of the second that is still read.
    package static func decode(_ bytes: UnsafeRawBufferPointer) -> ImageRecord? {
        var reader = ByteReader(bytes)
        guard let version = reader.integer(UInt8.self), version == self.version || version == 2,
            let present = reader.integer(UInt16.self).map(Present.init(rawValue:)),
            present.isSubset(of: version == 2 ? .second : .all),
            let kind = reader.integer(UInt8.self).flatMap(ImageKind.init(rawValue:)),
            let width = reader.integer(UInt32.self), let height = reader.integer(UInt32.self),
            let digest = reader.take(32).flatMap({ ImageDigest($0) }),
            let storedAt = reader.integer(Int64.self), let initialAge = reader.integer(Int64.self),
            let lifetime = reader.integer(Int64.self), present.contains(.lifetime) || lifetime == 0,
            let whileRevalidate = reader.integer(Int64.self), let ifError = reader.integer(Int64.self)
        else { return nil }

        var tokenFamily: UInt32?
        if present.contains(.tokenFamily) {
            tokenFamily = reader.integer(UInt32.self)
            if tokenFamily == nil { return nil }
        }
        var rendered: ImageDigest?
        if present.contains(.rendered) {
            rendered = reader.take(32).flatMap { ImageDigest($0) }
            if rendered == nil { return nil }
        }
        // Made in one go, from values on the stack: each copy of a record costs a hit some 200 instructions, and an
        // array 700.
        var url: String?
        var redirectedTo: String?
        var fields = StoredFields()
        guard read(&url, if: present.contains(.url), from: &reader),
            read(&redirectedTo, if: present.contains(.redirectedTo), from: &reader),
            read(&fields.cacheControl, if: present.contains(.text(0)), from: &reader),
            read(&fields.expires, if: present.contains(.text(1)), from: &reader),
            read(&fields.pragma, if: present.contains(.text(2)), from: &reader),
            read(&fields.vary, if: present.contains(.text(3)), from: &reader),
            read(&fields.etag, if: present.contains(.text(4)), from: &reader),
            read(&fields.lastModified, if: present.contains(.text(5)), from: &reader), reader.isAtEnd
        else { return nil }
        return ImageRecord(
            shape: ImageShape(kind: kind, width: width, height: height), digest: digest,
            provenance: url.map(Provenance.url) ?? .put,
            freshness: Freshness(
                storedAt: storedAt, initialAge: initialAge, lifetime: present.contains(.lifetime) ? lifetime : nil,
                staleWhileRevalidate: whileRevalidate, staleIfError: ifError),
            fields: fields, redirectedTo: redirectedTo, tokenFamily: tokenFamily, isStandIn: present.contains(.standIn),
            rendered: rendered)
    }

    /// A text that may be missing. False when it should be there and is none.
    private static func read(_ text: inout String?, if isPresent: Bool, from reader: inout ByteReader) -> Bool {
        guard isPresent else { return true }
        text = reader.text()
        return text != nil
    }
}
