import CacheCore
import Foundation
import NIOCore
import Testing

@Suite struct ImageSnifferTests {
    @Test(arguments: Sample.all)
    func `the format is detected from the bytes`(sample: Sample) throws {
        let shape = try ImageSniffer.sniff(sample.bytes, maximumDimension: 17)
        #expect(shape == ImageShape(kind: sample.kind, width: 17, height: 11))
    }

    @Test(arguments: Sample.all)
    func `the image may start at any offset of its buffer`(sample: Sample) throws {
        var buffer = ByteBuffer(string: "$99\r\n")
        buffer.writeImmutableBuffer(sample.bytes)
        buffer.moveReaderIndex(forwardBy: 5)
        #expect(try ImageSniffer.sniff(buffer, maximumDimension: 17).kind == sample.kind)
    }

    @Test(arguments: Sample.all)
    func `F38: a dimension over the limit is rejected`(sample: Sample) {
        #expect(throws: ImageRefusal("the image declares 17 x 11 pixels: at most 16 each way are kept")) {
            try ImageSniffer.sniff(sample.bytes, maximumDimension: 16)
        }
    }

    @Test(arguments: Sample.all)
    func `F38: an image that is truncated anywhere in its header is rejected`(sample: Sample) throws {
        var completeAt: Int?
        for length in 0...sample.bytes.readableBytes {
            let cut = try #require(sample.bytes.getSlice(at: 0, length: length))
            do {
                let shape = try ImageSniffer.sniff(cut, maximumDimension: 8192)
                #expect(shape.width == 17 && shape.height == 11, "wrong shape from \(length) bytes")
                completeAt = completeAt ?? length
            } catch {
                #expect(completeAt == nil, "\(length) bytes rejected although fewer sufficed")
            }
        }
        #expect(completeAt == sample.headerLength)
    }

    @Test(arguments: Sample.all)
    func `F38: no single changed byte causes a trap or exceeds the limit`(sample: Sample) {
        for index in 0..<sample.bytes.readableBytes {
            for value: UInt8 in [0, 1, 0x7F, 0x80, 0xFE, 0xFF] {
                var changed = sample.bytes
                changed.setInteger(value, at: index)
                guard let shape = try? ImageSniffer.sniff(changed, maximumDimension: 8192) else { continue }
                #expect((1...8192).contains(shape.width) && (1...8192).contains(shape.height))
            }
        }
    }

    @Test(arguments: [
        ("", "the image is empty"),
        ("<!doctype html><title>Not here</title>", "markup"),
        ("\u{FEFF} \n\t<svg xmlns='http://www.w3.org/2000/svg' width='1' height='1'/>", "markup"),
        ("<?xml version='1.0'?><svg/>", "markup"),
        ("BM this may be a bitmap", "no image of a known kind"),
        ("{\"error\": \"not found\"}", "no image of a known kind"),
        ("GIF90a...............", "no image of a known kind"),
        ("RIFF....AVI LIST....", "no image of a known kind"),
    ])
    func `F38: bytes of other formats are rejected with a reason`(text: String, expected: String) {
        #expect {
            try ImageSniffer.sniff(ByteBuffer(string: text), maximumDimension: 8192)
        } throws: { error in
            (error as? ImageRefusal)?.reason.contains(expected) == true
        }
    }

    @Test(arguments: [
        // PNGs of 65,536 x 65,536 and with a width of 2^32 - 1; a PNG, GIF, JPEG and WebP with a width of 0.
        ("89504e470d0a1a0a 0000000d49484452 00010000 00010000 0802000000 00000000", "65536 x 65536"),
        ("89504e470d0a1a0a 0000000d49484452 ffffffff 00000001 0802000000 00000000", "4294967295 x 1"),
        ("89504e470d0a1a0a 0000000d49484452 00000000 00000001 0802000000 00000000", "at least 1"),
        ("474946383961 0000 0100 00 00 00", "at least 1"),
        ("ffd8 ffc0 000b 08 0000 0010 01 011100", "at least 1"),
        ("52494646 16000000 57454250 56503820 0a000000 000000 9d012a 0000 1000", "at least 1"),
        // PNGs whose first chunk is not IHDR, or whose IHDR has another length.
        ("89504e470d0a1a0a 0000000d49444154 00000001 00000001 0802000000 00000000", "does not begin with its IHDR"),
        ("89504e470d0a1a0a 0000000e49484452 00000001 00000001 0802000000 00000000", "does not begin with its IHDR"),
        // JPEGs: scan first, end first, segment of length 0, no marker, frame header too short.
        ("ffd8 ffda 000c 0301000210", "before its scan"),
        ("ffd8 ffd9", "before its scan"),
        ("ffd8 ffe0 0000 ffc0 000b 08 0010 0010 01 011100", "shorter than its own length"),
        ("ffd8 ffe0 0002 00c0 000b 08 0010 0010 01 011100", "where one was due"),
        ("ffd8 ffc0 0007 08 0010 0010 01 011100", "too short"),
        // WebPs: not a key frame, no start code, no lossless signature, later version, unknown chunk.
        ("52494646 16000000 57454250 56503820 0a000000 010000 9d012a 1000 1000", "key frame"),
        ("52494646 16000000 57454250 56503820 0a000000 000000 9d012b 1000 1000", "key frame"),
        ("52494646 16000000 57454250 5650384c 0a000000 2e0000000000", "signature"),
        ("52494646 16000000 57454250 5650384c 0a000000 2f000000e000", "signature"),
        ("52494646 16000000 57454250 414c5048 0a000000 2f0000000000", "none of VP8, VP8L and VP8X"),
        // HEIC; MP4; boxes of lengths 1, 7, 2^32 - 1 and 2^64 - 1; a ftyp without a brand; a ftyp alone.
        ("00000018 66747970 68656963 00000000 6d696631 68656963", "HEIC"),
        ("00000018 66747970 69736f6d 00000000 69736f6d 6d703431", "HEIC and video"),
        ("00000007 66747970 61766966 00000000", "shorter than its header"),
        ("ffffffff 66747970 61766966 00000000", "longer than what encloses it"),
        ("00000001 66747970 ffffffffffffffff 61766966", "longer than what encloses it"),
        ("00000001 66747970 0000000000000001 61766966", "shorter than its header"),
        ("00000008 66747970 61766966 00000000", "ftyp box is too short"),
        ("00000010 66747970 61766966 00000000", "does not tell its dimensions"),
        ("00000010 66747970 61766966 00000000 00000010 6d646174 ffffffffffffffff", "does not tell its dimensions"),
    ])
    func `F38: an invalid header is rejected with a reason`(hex: String, expected: String) {
        #expect {
            try ImageSniffer.sniff(ByteBuffer(hex: hex), maximumDimension: 8192)
        } throws: { error in
            guard let reason = (error as? ImageRefusal)?.reason else { return false }
            return reason.contains(expected)
        }
    }

    @Test(
        arguments: [
            ("JPEG: fill bytes", "ffd8", [0xFF]), ("JPEG: empty segments", "ffd8", [0xFF, 0xE0, 0, 2]),
            ("JPEG: stray bytes", "ffd8 ffe0 0002", [0, 1]), ("JPEG: stuffed bytes", "ffd8", [0xFF, 0, 7]),
            ("GIF: extensions", "474946383961 0000 0000 00 00 00", [0x21, 0xFE, 1, 7, 0]),
            ("GIF: one extension", "474946383961 0000 0000 00 00 00 21fe", [1, 7]),
            ("AVIF: empty boxes", "00000010 66747970 61766966 00000000", [0, 0, 0, 8, 0x66, 0x72, 0x65, 0x65]),
            ("AVIF: brands", "00000000 66747970 69736f6d 00000000", [0x6D, 0x70, 0x34, 0x31]),
        ] as [(String, String, [UInt8])])
    func `F38: parsing stops after a bounded number of steps`(name: String, start: String, step: [UInt8]) {
        var bytes = ByteBuffer(hex: start)
        bytes.writeBytes(repeatElement(step, count: 100_000).joined())
        #expect(throws: ImageRefusal.self) { try ImageSniffer.sniff(bytes, maximumDimension: 8192) }
    }

    @Test(arguments: ["avif", "avis", "avio", "MA1A", "MA1B", "miaf", "msf1"])
    func `an AVIF is detected by any of its brands`(brand: String) throws {
        var bytes = Sample.avif
        bytes.setString(brand, at: bytes.readerIndex + 8)
        #expect(try ImageSniffer.sniff(bytes, maximumDimension: 8192).kind == .avif)
        let length = try #require(bytes.getInteger(at: bytes.readerIndex, as: UInt32.self))
        for place in stride(from: 16, to: Int(length), by: 4) { bytes.setString("mif1", at: bytes.readerIndex + place) }
        let isKnown = (try? ImageSniffer.sniff(bytes, maximumDimension: 8192)) != nil
        #expect(isKnown == (brand != "miaf" && brand != "msf1"))
    }

    @Test(arguments: [
        // A screen of 0 x 0; one far larger than its frame; one over the limit, after a color table and a comment.
        ("474946383961 0000 0000 00 00 00 2c 0000 0000 0500 0400 00", 5, 4),
        ("474946383961 8002 e001 00 00 00 2c 0100 0200 0500 0400 00", 6, 6),
        ("474946383961 ffff ffff 80 00 00 000000 ffffff 21fe 02 6869 00 2c 0000 0000 0500 0400 00", 5, 4),
        // The screen size applies if the first frame covers a part of it, is absent, or is empty.
        ("474946383961 2000 1000 00 00 00 2c 0100 0200 0500 0400 00", 32, 16),
        ("474946383961 2000 1000 00 00 00 3b 00000000000000000000", 32, 16),
        ("474946383961 2000 1000 00 00 00 2c 0000 0000 0000 0000 00", 32, 16),
        ("474946383961 2000 1000 00 00 00 21fe 05 6869", 32, 16),
    ])
    func `the size of a GIF with an implausible screen is that of its first frame`(
        hex: String, width: UInt32, height: UInt32
    ) throws {
        let shape = try ImageSniffer.sniff(ByteBuffer(hex: hex), maximumDimension: 4096)
        #expect(shape == ImageShape(kind: .gif, width: width, height: height))
    }

    @Test(arguments: [
        ("474946383961 ffff ffff 00 00 00 2c ffff 0000 0500 0400 00", "at most 4096"),
        ("474946383961 0000 0000 00 00 00 2c 0000 0000 0000 0400 00", "at least 1"),
        ("474946383961 0000 0000 00 00 00 3b", "at least 1"),
    ])
    func `F38: a GIF whose first frame is too large or empty is rejected`(hex: String, expected: String) {
        #expect {
            try ImageSniffer.sniff(ByteBuffer(hex: hex), maximumDimension: 4096)
        } throws: { error in
            (error as? ImageRefusal)?.reason.contains(expected) == true
        }
    }

    @Test(arguments: [
        // Zeros; text; a stuffed byte; a restart marker: each after a segment that is longer than its length field
        // says.
        "ffd8 ffe0 0002 000000 ffc0 000b 08 0004 0005 01 011100",
        "ffd8 ffe0 0002 616263 ffc0 000b 08 0004 0005 01 011100",
        "ffd8 ffe0 0002 ff00 41 ffc0 000b 08 0004 0005 01 011100",
        "ffd8 ffe0 0002 ffd0 ffc0 000b 08 0004 0005 01 011100",
    ])
    func `a JPEG with stray bytes before a marker is accepted, as by decoders`(hex: String) throws {
        let shape = try ImageSniffer.sniff(ByteBuffer(hex: hex), maximumDimension: 4096)
        #expect(shape == ImageShape(kind: .jpeg, width: 5, height: 4))
    }

    @Test func `the size of an AVIF is its largest extent, and every extent is checked against the limit`() throws {
        // The second box is meta/iprp/ipco with two ispe boxes, 16 x 4096 and 4096 x 16, as in a tiled image.
        let bytes = ByteBuffer(
            hex: """
                00000014 66747970 6d696631 00000000 61766966 \
                00000044 6d657461 00000000 00000038 69707270 00000030 6970636f \
                00000014 69737065 00000000 00000010 00001000 00000014 69737065 00000000 00001000 00000010
                """)
        let shape = try ImageSniffer.sniff(bytes, maximumDimension: 4096)
        #expect(shape == ImageShape(kind: .avif, width: 4096, height: 4096))
        #expect(throws: ImageRefusal.self) { try ImageSniffer.sniff(bytes, maximumDimension: 4095) }
    }
}

/// An image of 17 x 11 red pixels from a common encoder.
struct Sample: Sendable, CustomTestStringConvertible {
    let name: String
    let kind: ImageKind
    /// The number of bytes after which format and size are known.
    let headerLength: Int
    let bytes: ByteBuffer

    var testDescription: String { name }

    static let all = [
        Sample(name: "PNG", kind: .png, headerLength: 33, bytes: png),
        Sample(name: "JPEG", kind: .jpeg, headerLength: 168, bytes: jpeg),
        Sample(name: "JPEG, progressive", kind: .jpeg, headerLength: 168, bytes: progressiveJPEG),
        Sample(name: "GIF", kind: .gif, headerLength: 13, bytes: gif),
        Sample(name: "WebP, lossy", kind: .webp, headerLength: 30, bytes: webpLossy),
        Sample(name: "WebP, lossless", kind: .webp, headerLength: 25, bytes: webpLossless),
        Sample(name: "WebP, extended", kind: .webp, headerLength: 30, bytes: webpExtended),
        Sample(name: "AVIF", kind: .avif, headerLength: 274, bytes: avif),
        Sample(name: "AVIF with an alpha plane", kind: .avif, headerLength: 429, bytes: avifWithAlpha),
    ]

    static let png = decode(
        """
        iVBORw0KGgoAAAANSUhEUgAAABEAAAALAQMAAACj7vREAAAABlBMVEX/AAD///9BHTQRAAAADElEQVQI12NgIB4AAAAsAAGEoFnJ\
        AAAAAElFTkSuQmCC
        """)
    static let jpeg = decode(
        """
        /9j/4AAQSkZJRgABAQAAAQABAAD/2wBDACgcHiMeGSgjISMtKygwPGRBPDc3PHtYXUlkkYCZlo+AjIqgtObDoKrarYqMyP/L2u71\
        ////m8H////6/+b9//j/2wBDASstLTw1PHZBQXb4pYyl+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4\
        +Pj4+Pj4+Pj/wAARCAALABEDASIAAhEBAxEB/8QAFQABAQAAAAAAAAAAAAAAAAAAAAT/xAAUEAEAAAAAAAAAAAAAAAAAAAAA/8QA\
        FgEBAQEAAAAAAAAAAAAAAAAAAAQF/8QAFBEBAAAAAAAAAAAAAAAAAAAAAP/aAAwDAQACEQMRAD8AlATtgAB//9k=
        """)
    static let progressiveJPEG = decode(
        """
        /9j/4AAQSkZJRgABAQAAAQABAAD/2wBDACgcHiMeGSgjISMtKygwPGRBPDc3PHtYXUlkkYCZlo+AjIqgtObDoKrarYqMyP/L2u71\
        ////m8H////6/+b9//j/2wBDASstLTw1PHZBQXb4pYyl+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4\
        +Pj4+Pj4+Pj/wgARCAALABEDASIAAhEBAxEB/8QAFQABAQAAAAAAAAAAAAAAAAAAAAP/xAAWAQEBAQAAAAAAAAAAAAAAAAAAAwT/\
        2gAMAwEAAhADEAAAAZCewD//xAAUEAEAAAAAAAAAAAAAAAAAAAAg/9oACAEBAAEFAl//xAAUEQEAAAAAAAAAAAAAAAAAAAAQ/9oA\
        CAEDAQE/AT//xAAUEQEAAAAAAAAAAAAAAAAAAAAQ/9oACAECAQE/AT//xAAUEAEAAAAAAAAAAAAAAAAAAAAg/9oACAEBAAY/Al//\
        xAAUEAEAAAAAAAAAAAAAAAAAAAAg/9oACAEBAAE/IV//2gAMAwEAAgADAAAAEAAP/8QAFBEBAAAAAAAAAAAAAAAAAAAAEP/aAAgB\
        AwEBPxA//8QAFBEBAAAAAAAAAAAAAAAAAAAAEP/aAAgBAgEBPxA//8QAFBABAAAAAAAAAAAAAAAAAAAAIP/aAAgBAQABPxBf/9k=
        """)
    static let gif = decode(
        """
        R0lGODlhEQALAPAAAP8AAAAAACH5BAAAAAAALAAAAAARAAsAAAIMhI+py+0Po5y0WloAADs=
        """)
    static let webpLossy = decode(
        """
        UklGRkAAAABXRUJQVlA4IDQAAACwAgCdASoRAAsAPzmGuVOvKSWisAgB4CcJQAAPZAAA/uQBf+DZIpzl//+N4/uU/xT496AA
        """)
    static let webpLossless = decode(
        """
        UklGRhwAAABXRUJQVlA4TA8AAAAvEIACAAcQ/Y/+ByKi/wEA
        """)
    static let webpExtended = decode(
        """
        UklGRmQAAABXRUJQVlA4WAoAAAAQAAAAEAAACgAAQUxQSAoAAAABB1DAiAhERP8DVlA4IDQAAADQAgCdASoRAAsAP3Ggxli0q6ej\
        sAgCkC4JQBWABaSAAP7guXlkYixV/8EF+IP1BqdVSAAA
        """)
    static let avif = decode(
        """
        AAAAIGZ0eXBhdmlmAAAAAGF2aWZtaWYxbWlhZk1BMUEAAADybWV0YQAAAAAAAAAoaGRscgAAAAAAAAAAcGljdAAAAAAAAAAAAAAA\
        AGxpYmF2aWYAAAAADnBpdG0AAAAAAAEAAAAeaWxvYwAAAABEAAABAAEAAAABAAABGgAAAB4AAAAoaWluZgAAAAAAAQAAABppbmZl\
        AgAAAAABAABhdjAxQ29sb3IAAAAAamlwcnAAAABLaXBjbwAAABRpc3BlAAAAAAAAABEAAAALAAAAEHBpeGkAAAAAAwgICAAAAAxh\
        djFDgSAAAAAAABNjb2xybmNseAABAA0ABoAAAAAXaXBtYQAAAAAAAAABAAEEAQKDBAAAACZtZGF0EgAKCDgQ4UwgIaDSMhAfQD//\
        /8UAtQoFcqom0a+A
        """)
    static let avifWithAlpha = decode(
        """
        AAAAIGZ0eXBhdmlmAAAAAGF2aWZtaWYxbWlhZk1BMUEAAAGNbWV0YQAAAAAAAAAoaGRscgAAAAAAAAAAcGljdAAAAAAAAAAAAAAA\
        AGxpYmF2aWYAAAAADnBpdG0AAAAAAAEAAAAsaWxvYwAAAABEAAACAAEAAAABAAABwwAAAB4AAgAAAAEAAAG1AAAADgAAAEJpaW5m\
        AAAAAAACAAAAGmluZmUCAAAAAAEAAGF2MDFDb2xvcgAAAAAaaW5mZQIAAAAAAgAAYXYwMUFscGhhAAAAABppcmVmAAAAAAAAAA5h\
        dXhsAAIAAQABAAAAw2lwcnAAAACdaXBjbwAAABRpc3BlAAAAAAAAABEAAAALAAAAEHBpeGkAAAAAAwgICAAAAAxhdjFDgSAAAAAA\
        ABNjb2xybmNseAABAA0ABoAAAAAOcGl4aQAAAAABCAAAAAxhdjFDgQAcAAAAADhhdXhDAAAAAHVybjptcGVnOm1wZWdCOmNpY3A6\
        c3lzdGVtczphdXhpbGlhcnk6YWxwaGEAAAAAHmlwbWEAAAAAAAAAAgABBAECgwQAAgQBBYYHAAAANG1kYXQSAAoFGBDhTCoyAxAA\
        HxIACgg4EOFMICGg0jIQH0A////FALUKBXKqJtGvgA==
        """)

    private static func decode(_ base64: String) -> ByteBuffer {
        ByteBuffer(bytes: Data(base64Encoded: base64) ?? Data())
    }
}

extension ByteBuffer {
    /// From hexadecimal digits; spaces are ignored.
    fileprivate init(hex: String) {
        self.init()
        let digits = hex.utf8.compactMap { Character(UnicodeScalar($0)).hexDigitValue }
        for index in stride(from: 0, to: digits.count - 1, by: 2) {
            writeInteger(UInt8(digits[index] << 4 | digits[index + 1]))
        }
    }
}
