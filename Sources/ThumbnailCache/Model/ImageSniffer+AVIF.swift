extension ImageSniffer {
    /// AVIF section 4 and ISO/IEC 23008-12: a `ftyp` box that names the brand, then a `meta` box in which
    /// `iprp` / `ipco` hold an `ispe` (extent in pixels) for each size of picture in the file.
    ///
    /// A picture made of tiles has one `ispe` for a tile and one for the whole, thumbnails and alpha planes have theirs:
    /// the picture is the largest, and none may be larger than the limit. So which item is the primary one need not be known.
    static func avif(_ header: HeaderReader) throws(ImageRefusal) -> ImageShape {
        var walk = BoxWalk(header)
        let file = 0..<header.count
        let type = try walk.box(at: 0, within: file)
        guard try names(type, brands: [fourCC("avif"), fourCC("avis")], header) else {
            throw ImageRefusal("an ISO media file without the brand avif or avis (HEIC and video are not kept)")
        }
        // `meta` is a full box: four bytes of version and flags come before its content.
        let meta = try walk.first(fourCC("meta"), in: type.end..<header.count)
        guard let content = meta.content(after: 4) else { throw ImageRefusal("an AVIF whose meta box is too short") }
        let properties = try walk.first(fourCC("iprp"), in: content)
        let container = try walk.first(fourCC("ipco"), in: properties.content)

        var largest = ImageShape(kind: .avif, width: 0, height: 0)
        var offset = container.content.lowerBound
        while offset < container.end {
            let property = try walk.box(at: offset, within: container.content)
            if property.type == fourCC("ispe") {
                guard let extent = property.content(after: 4), extent.count >= 8 else {
                    throw ImageRefusal("an AVIF whose ispe property is too short")
                }
                // Widest and highest on their own: a limit on either holds for every picture in the file.
                largest = ImageShape(
                    kind: .avif,
                    width: max(largest.width, try header.uint32(at: extent.lowerBound)),
                    height: max(largest.height, try header.uint32(at: extent.lowerBound + 4)))
            }
            offset = property.end
        }
        return largest
    }

    /// Whether a `ftyp` box has one of the brands, as its major or as a compatible one.
    private static func names(_ type: Box, brands: [UInt32], _ header: HeaderReader) throws(ImageRefusal) -> Bool {
        let content = type.content
        guard content.count >= 8 else { throw ImageRefusal("an ISO media file whose ftyp box is too short") }
        if brands.contains(try header.fourCharacters(at: content.lowerBound)) { return true }
        // After the major brand and its version: as many as fit, of which real files have about six.
        for offset in stride(from: content.lowerBound + 8, through: content.upperBound - 4, by: 4).prefix(64)
        where brands.contains(try header.fourCharacters(at: offset)) {
            return true
        }
        return false
    }
}

/// One box: where its content lies in the file.
private struct Box {
    let type: UInt32
    let content: Range<Int>
    var end: Int { content.upperBound }

    /// The content without its first bytes, nil if it has fewer.
    func content(after skipped: Int) -> Range<Int>? {
        content.count >= skipped ? (content.lowerBound + skipped)..<content.upperBound : nil
    }
}

/// Reads box headers (ISO/IEC 14496-12 section 4.2), and not more than a bounded number of them.
private struct BoxWalk {
    private let header: HeaderReader
    private var boxesLeft = 1024

    init(_ header: HeaderReader) {
        self.header = header
    }

    /// The box at `offset`, which must end where `enclosing` ends or before.
    mutating func box(at offset: Int, within enclosing: Range<Int>) throws(ImageRefusal) -> Box {
        guard boxesLeft > 0 else { throw ImageRefusal("an AVIF with more than 1024 boxes in its header") }
        boxesLeft -= 1
        let type = try header.fourCharacters(at: offset + 4)
        let start: Int
        let length: UInt64
        switch try header.uint32(at: offset) {
        case 0:
            // To the end of what encloses it.
            start = offset + 8
            length = UInt64(enclosing.upperBound - offset)
        case 1:
            start = offset + 16
            length = try header.uint64(at: offset + 8)
        case let short:
            start = offset + 8
            length = UInt64(short)
        }
        // Compared as lengths, never as sums: a length near 2^64 must not overflow on its way to being refused.
        guard length >= UInt64(start - offset), length <= UInt64(enclosing.upperBound - offset) else {
            throw ImageRefusal("an AVIF with a box that is shorter than its header or longer than what encloses it")
        }
        return Box(type: type, content: start..<(offset + Int(length)))
    }

    /// The first box of a type among those that lie side by side in `range`.
    mutating func first(_ type: UInt32, in range: Range<Int>) throws(ImageRefusal) -> Box {
        var offset = range.lowerBound
        while offset < range.upperBound {
            let box = try box(at: offset, within: range)
            if box.type == type { return box }
            offset = box.end
        }
        throw ImageRefusal("an AVIF whose header does not tell its dimensions")
    }
}
