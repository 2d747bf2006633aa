import CacheCore

/// The encoding of ``CacheCore/ImageRecord``: a version, fields of fixed size, then variable ones. An entry of another
/// version is a miss. Version 2 is still read if the response cannot have varied by token: no Vary, no redirect.
package enum ImageRecordCoding {
    private static let version: UInt8 = 3

    private struct Present: OptionSet {
        let rawValue: UInt16
        static let url = Present(rawValue: 1)
        static let redirectedTo = Present(rawValue: 2)
        static let lifetime = Present(rawValue: 4)
        static let tokenFamily = Present(rawValue: 0x200)
        /// The flag is the value.
        static let standIn = Present(rawValue: 0x400)
        static let rendered = Present(rawValue: 0x800)
        static let all = Present(rawValue: 0xFFF)
        /// Flags allowed in version 2.
        static let second = all.subtracting([.tokenFamily, .standIn, .rendered, .redirectedTo, .text(3)])

        /// The flag of one of the six header fields, in their order.
        static func text(_ index: Int) -> Present { Present(rawValue: 8 << UInt16(index)) }
    }

    package static func encode(_ record: ImageRecord) -> [UInt8]? {
        var present: Present = []
        let url: String? = if case .url(let provenance) = record.provenance { provenance } else { nil }
        if url != nil { present.insert(.url) }
        if record.redirectedTo != nil { present.insert(.redirectedTo) }
        if record.freshness.lifetime != nil { present.insert(.lifetime) }
        if record.tokenFamily != nil { present.insert(.tokenFamily) }
        if record.isStandIn { present.insert(.standIn) }
        if record.sourceDigest != nil { present.insert(.rendered) }
        let fields = record.fields
        var texts: [String] = []
        for (index, text) in [
            fields.cacheControl, fields.expires, fields.pragma, fields.vary, fields.etag, fields.lastModified,
        ].enumerated() {
            // Omit fields longer than the cache keeps.
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
        if let rendered = record.sourceDigest { writer.append(rendered.bytes) }
        if let url { writer.text(url) }
        if let redirectedTo = record.redirectedTo { writer.text(redirectedTo) }
        for text in texts { writer.text(text) }
        return writer.isTooLong ? nil : writer.bytes
    }

    package static func decode(_ bytes: UnsafeRawBufferPointer) -> ImageRecord? {
        var reader = ByteReader(bytes)
        guard let version = reader.integer(UInt8.self), version == self.version || version == 2,
            let present = reader.integer(UInt16.self).map(Present.init(rawValue:)),
            present.isSubset(of: version == 2 ? .second : .all),
            let kind = reader.integer(UInt8.self).flatMap(ImageKind.init(rawValue:)),
            let width = reader.integer(UInt32.self), let height = reader.integer(UInt32.self),
            let digest = reader.read(32).flatMap({ ImageDigest($0) }),
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
            rendered = reader.read(32).flatMap { ImageDigest($0) }
            if rendered == nil { return nil }
        }
        // Built from local values in one step: each copy of a record costs a hit 200 instructions, an array 700.
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
            sourceDigest: rendered)
    }

    /// Reads an optional text. Returns false if it is present but invalid.
    private static func read(_ text: inout String?, if isPresent: Bool, from reader: inout ByteReader) -> Bool {
        guard isPresent else { return true }
        text = reader.text()
        return text != nil
    }
}
