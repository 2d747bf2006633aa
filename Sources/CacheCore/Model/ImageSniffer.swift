import NIOCore

/// Reads the format and dimensions of an image from its header, without decoding it. Takes microseconds.
///
/// The bytes are untrusted: every access is checked, every loop is bounded, and nothing traps.
public struct ImageSniffer: Sendable {
    /// - Parameters:
    ///   - bytes: the whole image, from its reader index on.
    ///   - maximumDimension: pixels that neither width nor height may exceed.
    /// - Returns: format, width and height of the coded image or canvas, without a rotation by metadata.
    /// - Throws: for an unknown format, a truncated header, or dimensions that are zero or too large.
    public static func sniff(_ bytes: ByteBuffer, maximumDimension: Int) throws(ImageRefusal) -> ImageShape {
        let header = HeaderReader(buffer: bytes)
        let shape: ImageShape
        if header.starts(with: [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]) {
            shape = try png(header)
        } else if header.starts(with: [0xFF, 0xD8, 0xFF]) {
            shape = try jpeg(header)
        } else if header.starts(with: Array("GIF87a".utf8)) || header.starts(with: Array("GIF89a".utf8)) {
            shape = try gif(header)
        } else if header.starts(with: Array("RIFF".utf8)), header.starts(with: Array("WEBP".utf8), at: 8) {
            shape = try webp(header)
        } else if header.starts(with: Array("ftyp".utf8), at: 4) {
            shape = try avif(header)
        } else {
            throw unknown(header)
        }
        guard shape.width > 0, shape.height > 0 else {
            throw ImageRefusal("the image declares \(shape.width) x \(shape.height) pixels: both must be at least 1")
        }
        guard shape.width <= maximumDimension, shape.height <= maximumDimension else {
            let size = "\(shape.width) x \(shape.height) pixels"
            throw ImageRefusal("the image declares \(size): at most \(maximumDimension) each way are kept")
        }
        return shape
    }

    /// PNG, third edition, section 11.2.1: IHDR is the first chunk and 13 bytes long.
    private static func png(_ header: HeaderReader) throws(ImageRefusal) -> ImageShape {
        guard try header.uint32(at: 8) == 13, header.starts(with: Array("IHDR".utf8), at: 12) else {
            throw ImageRefusal("a PNG that does not begin with its IHDR chunk")
        }
        let width = try header.uint32(at: 16)
        let height = try header.uint32(at: 20)
        _ = try header.uint32(at: 29)
        return ImageShape(kind: .png, width: width, height: height)
    }

    /// GIF89a section 18: the logical screen descriptor follows the signature. Some encoders write a screen of 0 x 0 or
    /// of their monitor's size; decoders then show the first frame alone.
    private static func gif(_ header: HeaderReader) throws(ImageRefusal) -> ImageShape {
        let width = UInt32(try header.uint16LittleEndian(at: 6))
        let height = UInt32(try header.uint16LittleEndian(at: 8))
        _ = try header.byte(at: 12)
        let screen = ImageShape(kind: .gif, width: width, height: height)
        guard let frame = try firstFrame(header), frame.width > 0, frame.height > 0 else { return screen }
        let isPlausible =
            width > 0 && height > 0 && width <= 8 * frame.width && height <= 8 * frame.height
        return isPlausible ? screen : frame
    }

    /// The extent of the first frame, including its offset (sections 18 to 26); nil if none is found.
    private static func firstFrame(_ header: HeaderReader) throws(ImageRefusal) -> ImageShape? {
        let flags = try header.byte(at: 10)
        var offset = 13 + (flags & 0x80 == 0 ? 0 : 3 << (Int(flags & 7) + 1))
        for _ in 0..<4096 {
            guard offset + 10 <= header.count else { return nil }
            switch try header.byte(at: offset) {
            case 0x2C:
                let right = try UInt32(header.uint16LittleEndian(at: offset + 1))
                let bottom = try UInt32(header.uint16LittleEndian(at: offset + 3))
                return ImageShape(
                    kind: .gif, width: right + UInt32(try header.uint16LittleEndian(at: offset + 5)),
                    height: bottom + UInt32(try header.uint16LittleEndian(at: offset + 7)))
            case 0x21:
                guard let end = try endOfSubBlocks(header, from: offset + 2) else { return nil }
                offset = end
            default:
                return nil
            }
        }
        return nil
    }

    /// The offset after the empty sub-block that ends an extension (section 16); nil if the bytes end before it.
    private static func endOfSubBlocks(_ header: HeaderReader, from start: Int) throws(ImageRefusal) -> Int? {
        var offset = start
        for _ in 0..<4096 {
            guard offset < header.count else { return nil }
            let length = Int(try header.byte(at: offset))
            offset += 1 + length
            if length == 0 { return offset }
        }
        return nil
    }

    /// ITU-T T.81 annex B: marker segments up to the frame header, which holds the dimensions.
    private static func jpeg(_ header: HeaderReader) throws(ImageRefusal) -> ImageShape {
        // Bounds the search through millions of empty segments or fill bytes. Real files have dozens of segments.
        var offset = 2
        var strayLeft = 64 << 10
        for _ in 0..<4096 {
            // Decoders skip bytes before a marker: some cameras write longer segments than they declare.
            let marked = try header.offset(ofNext: 0xFF, from: offset, within: strayLeft)
            strayLeft -= marked - offset
            offset = marked
            let marker = try header.byte(at: offset + 1)
            switch marker {
            case 0xFF:
                // A fill byte; any number of them may precede a marker.
                offset += 1
            case 0x00, 0x01, 0xD0...0xD7:
                // A stray stuffed byte, or TEM and RSTm, which have no length.
                offset += 2
            case 0xC0...0xC3, 0xC5...0xC7, 0xC9...0xCB, 0xCD...0xCF:
                guard try header.uint16(at: offset + 2) >= 8 else {
                    throw ImageRefusal("a JPEG whose frame header is too short")
                }
                let height = try header.uint16(at: offset + 5)
                let width = try header.uint16(at: offset + 7)
                _ = try header.byte(at: offset + 9)
                return ImageShape(kind: .jpeg, width: UInt32(width), height: UInt32(height))
            case 0xD8...0xDA:
                throw ImageRefusal("a JPEG without a frame header before its scan")
            default:
                let length = Int(try header.uint16(at: offset + 2))
                guard length >= 2 else { throw ImageRefusal("a JPEG with a segment shorter than its own length field") }
                offset += 2 + length
            }
        }
        throw ImageRefusal("a JPEG without a frame header in its first 4096 segments")
    }

    /// The WebP container specification, RFC 6386 section 9.1 for VP8, the lossless bitstream specification for VP8L.
    private static func webp(_ header: HeaderReader) throws(ImageRefusal) -> ImageShape {
        let size = try header.uint32LittleEndian(at: 16)
        let width: UInt32
        let height: UInt32
        switch try header.uint32(at: 12) {
        case fourCC("VP8 "):
            // The frame tag, whose lowest bit is clear in a key frame, then the start code.
            guard size >= 10, try header.byte(at: 20) & 1 == 0, header.starts(with: [0x9D, 0x01, 0x2A], at: 23) else {
                throw ImageRefusal("a WebP that does not begin with a key frame")
            }
            width = UInt32(try header.uint16LittleEndian(at: 26) & 0x3FFF)
            height = UInt32(try header.uint16LittleEndian(at: 28) & 0x3FFF)
        case fourCC("VP8L"):
            let bits = try header.uint32LittleEndian(at: 21)
            guard size >= 5, try header.byte(at: 20) == 0x2F, bits >> 29 == 0 else {
                throw ImageRefusal("a lossless WebP without its signature")
            }
            width = (bits & 0x3FFF) + 1
            height = (bits >> 14 & 0x3FFF) + 1
        case fourCC("VP8X"):
            guard size >= 10 else { throw ImageRefusal("an extended WebP whose header chunk is too short") }
            width = UInt32(try header.uint24LittleEndian(at: 24)) + 1
            height = UInt32(try header.uint24LittleEndian(at: 27)) + 1
        default:
            throw ImageRefusal("a WebP whose first chunk is none of VP8, VP8L and VP8X")
        }
        return ImageShape(kind: .webp, width: width, height: height)
    }

    private static func unknown(_ header: HeaderReader) -> ImageRefusal {
        let known = "PNG, JPEG, GIF, WebP and AVIF are kept"
        guard header.count > 0 else { return ImageRefusal("the image is empty: \(known)") }
        if header.looksLikeMarkup {
            return ImageRefusal("the bytes are markup such as HTML or SVG: \(known)")
        }
        return ImageRefusal("the bytes are no image of a known kind: \(known)")
    }
}

/// Why bytes are rejected as an image: one sentence that quotes only numbers from the bytes.
public struct ImageRefusal: Error, Sendable, Equatable {
    public let reason: String

    public init(_ reason: String) {
        self.reason = reason
    }
}

func fourCC(_ text: StaticString) -> UInt32 {
    text.withUTF8Buffer { $0.prefix(4).reduce(0) { $0 << 8 | UInt32($1) } }
}

/// Checked reads at offsets from the start of an image.
struct HeaderReader {
    let buffer: ByteBuffer

    var count: Int { buffer.readableBytes }

    func byte(at offset: Int) throws(ImageRefusal) -> UInt8 { try integer(at: offset) }
    func uint16(at offset: Int) throws(ImageRefusal) -> UInt16 { try integer(at: offset) }
    func uint32(at offset: Int) throws(ImageRefusal) -> UInt32 { try integer(at: offset) }
    func uint64(at offset: Int) throws(ImageRefusal) -> UInt64 { try integer(at: offset) }
    func uint16LittleEndian(at offset: Int) throws(ImageRefusal) -> UInt16 { try uint16(at: offset).byteSwapped }
    func uint32LittleEndian(at offset: Int) throws(ImageRefusal) -> UInt32 { try uint32(at: offset).byteSwapped }

    func uint24LittleEndian(at offset: Int) throws(ImageRefusal) -> UInt32 {
        UInt32(try uint16LittleEndian(at: offset)) | UInt32(try byte(at: offset + 2)) << 16
    }

    /// The offset of the next byte of that value.
    /// - Parameter limit: most bytes to skip.
    func offset(ofNext byte: UInt8, from offset: Int, within limit: Int) throws(ImageRefusal) -> Int {
        guard offset < count else { throw ImageRefusal("the image ends within its header") }
        let rest = buffer.readableBytesView.dropFirst(offset).prefix(limit + 1)
        guard let index = rest.firstIndex(of: byte) else {
            throw ImageRefusal("a JPEG without a marker where one was due")
        }
        return offset + rest.distance(from: rest.startIndex, to: index)
    }

    func starts(with expected: [UInt8], at offset: Int = 0) -> Bool {
        guard offset <= count - expected.count else { return false }
        return buffer.readableBytesView.dropFirst(offset).starts(with: expected)
    }

    /// Whether the first byte after white space and byte order mark is `<`.
    var looksLikeMarkup: Bool {
        let blanks: [UInt8] = [0x20, 0x09, 0x0A, 0x0D, 0x0C, 0xEF, 0xBB, 0xBF]
        return buffer.readableBytesView.prefix(256).first { !blanks.contains($0) } == UInt8(ascii: "<")
    }

    /// `offset` is neither negative nor near Int.max: it grows from zero by lengths of at most 32 bits and is compared
    /// with `count` before each addition.
    private func integer<Integer: FixedWidthInteger>(at offset: Int) throws(ImageRefusal) -> Integer {
        guard offset <= count, let value = buffer.getInteger(at: buffer.readerIndex + offset, as: Integer.self) else {
            throw ImageRefusal("the image ends within its header")
        }
        return value
    }
}

extension ImageSniffer {
    /// AVIF section 4 and ISO/IEC 23008-12: a `ftyp` box that names the brand, then a `meta` box in which
    /// `iprp` / `ipco` hold an `ispe` (extent in pixels) for each image in the file.
    ///
    /// A tiled image has one `ispe` for a tile and one for the whole; thumbnails and alpha planes have their own. The
    /// image is the largest, and none may exceed the limit, whichever is primary.
    static func avif(_ header: HeaderReader) throws(ImageRefusal) -> ImageShape {
        var walk = BoxWalk(header: header)
        let file = 0..<header.count
        let type = try walk.box(at: 0, within: file)
        guard try names(type, brands: avifBrands, header) else {
            throw ImageRefusal("an ISO media file without a brand of AVIF (HEIC and video are not kept)")
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
                // The maximum of each side, so that the limit holds for every image in the file.
                largest = ImageShape(
                    kind: .avif,
                    width: max(largest.width, try header.uint32(at: extent.lowerBound)),
                    height: max(largest.height, try header.uint32(at: extent.lowerBound + 4)))
            }
            offset = property.end
        }
        return largest
    }

    /// Images, animations, animations without dependent frames, and the profiles of both: AVIF 1.1, sections 6 and 8.
    private static let avifBrands = [fourCC("avif"), fourCC("avis"), fourCC("avio"), fourCC("MA1A"), fourCC("MA1B")]

    /// Whether a `ftyp` box names one of the brands, as major or compatible brand.
    private static func names(_ type: Box, brands: [UInt32], _ header: HeaderReader) throws(ImageRefusal) -> Bool {
        let content = type.content
        guard content.count >= 8 else { throw ImageRefusal("an ISO media file whose ftyp box is too short") }
        if brands.contains(try header.uint32(at: content.lowerBound)) { return true }
        // After the major brand and its version. Real files have about six compatible brands.
        for offset in stride(from: content.lowerBound + 8, through: content.upperBound - 4, by: 4).prefix(64)
        where brands.contains(try header.uint32(at: offset)) {
            return true
        }
        return false
    }
}

/// The type of a box and the range of its content in the file.
private struct Box {
    let type: UInt32
    let content: Range<Int>
    var end: Int { content.upperBound }

    /// The content without its first bytes; nil if it is shorter.
    func content(after skipped: Int) -> Range<Int>? {
        content.count >= skipped ? (content.lowerBound + skipped)..<content.upperBound : nil
    }
}

/// Reads a bounded number of box headers (ISO/IEC 14496-12 section 4.2).
private struct BoxWalk {
    let header: HeaderReader
    var boxesLeft = 1024

    /// The box at `offset`, which must not end after `enclosing`.
    mutating func box(at offset: Int, within enclosing: Range<Int>) throws(ImageRefusal) -> Box {
        guard boxesLeft > 0 else { throw ImageRefusal("an AVIF with more than 1024 boxes in its header") }
        boxesLeft -= 1
        let type = try header.uint32(at: offset + 4)
        let start: Int
        let length: UInt64
        switch try header.uint32(at: offset) {
        case 0:
            // The box extends to the end of the enclosing one.
            start = offset + 8
            length = UInt64(enclosing.upperBound - offset)
        case 1:
            start = offset + 16
            length = try header.uint64(at: offset + 8)
        case let short:
            start = offset + 8
            length = UInt64(short)
        }
        // Compares lengths, not sums: a length near 2^64 must not overflow.
        guard length >= UInt64(start - offset), length <= UInt64(enclosing.upperBound - offset) else {
            throw ImageRefusal("an AVIF with a box that is shorter than its header or longer than what encloses it")
        }
        return Box(type: type, content: start..<(offset + Int(length)))
    }

    /// The first box of a type among the adjacent ones in `range`.
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
