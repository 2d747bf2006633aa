import NIOCore

extension ByteBuffer {
    /// Bytes that ``repairImage()`` may append.
    static var roomForRepair: Int { 32 }

    /// Changes an image so that libvips decodes it as browsers do.
    mutating func repairImage() {
        if starts(with: [0xFF, 0xD8, 0xFF]) {
            endJPEG()
        } else if starts(with: Array("GIF8".utf8)) {
            keepFirstFrameOfGIF()
        } else if starts(with: Array("ftyp".utf8), at: 4) {
            nameAVIF()
        }
    }

    private func starts(with prefix: [UInt8], at offset: Int = 0) -> Bool {
        getBytes(at: readerIndex + offset, length: prefix.count) == prefix
    }

    /// Appends an EOI marker (ITU-T T.81, B.1.1.3). A JPEG that lacks only this marker then decodes without a warning;
    /// one that lacks pixels does not.
    private mutating func endJPEG() { writeBytes([0xFF, 0xD9]) }

    /// Replaces everything after the first frame with a transparent frame of one pixel. libvips omits the alpha channel
    /// unless a frame declares a transparent color. Pixels that the first frame does not cover, or has no data for,
    /// would then be black.
    private mutating func keepFirstFrameOfGIF() {
        guard let end = endOfFirstFrame() else { return }
        moveWriterIndex(to: end)
        writeBytes([
            0x21, 0xF9, 4, 1, 0, 0, 0, 0,  // graphic control extension: color 0 is transparent
            0x2C, 0, 0, 0, 0, 1, 0, 1, 0, 0,  // image descriptor: 1 x 1 pixels
            2, 2, 0x44, 0x01, 0,  // one pixel of color 0, LZW
            0x3B,  // trailer
        ])
    }

    /// Walks the blocks of a GIF (GIF89a, appendix B) up to the end of its first image.
    /// - Returns: nil if the image is incomplete, or preceded by blocks other than extensions.
    private mutating func endOfFirstFrame() -> Int? {
        guard let screen: UInt8 = getInteger(at: readerIndex + 10) else { return nil }
        var place = readerIndex + 13 + Self.colorTableLength(screen)
        while let introducer: UInt8 = getInteger(at: place) {
            switch introducer {
            case 0x21:
                // An extension: its label, then its data.
                guard let end = endOfData(from: place + 2) else { return nil }
                place = end
            case 0x2C:
                guard let flags: UInt8 = getInteger(at: place + 9) else { return nil }
                // The color table and the size of LZW codes, then the data.
                return endOfData(from: place + 10 + Self.colorTableLength(flags) + 1)
            default: return nil
            }
        }
        return nil
    }

    private static func colorTableLength(_ flags: UInt8) -> Int { flags & 0x80 == 0 ? 0 : 3 << (flags & 7 + 1) }

    /// Walks data sub-blocks, each preceded by its length, up to the empty one. Appends that if only it is missing.
    private mutating func endOfData(from start: Int) -> Int? {
        var place = start
        while let length: UInt8 = getInteger(at: place) {
            place += 1 + Int(length)
            if length == 0 { return place }
        }
        guard place == writerIndex, place > start else { return nil }
        writeInteger(UInt8(0))
        return place + 1
    }

    /// Makes `avif` the major brand of an AVIF file (AVIF 1.1, section 6) that has another, such as `avis` for
    /// animations, and a compatible brand. libvips and libheif recognize no other.
    private mutating func nameAVIF() {
        let brands = ["avif", "avis", "avio", "MA1A", "MA1B"]
        guard let length: UInt32 = getInteger(at: readerIndex), length >= 20, Int(length) <= readableBytes else {
            return
        }
        let places = [readerIndex + 8] + stride(from: readerIndex + 16, through: readerIndex + Int(length) - 4, by: 4)
        let found = places.prefix(65).map { getString(at: $0, length: 4) ?? "" }
        guard found.contains(where: brands.contains) else { return }
        setString("avif", at: readerIndex + 8)
        if !found.dropFirst().contains("avif") { setString("avif", at: readerIndex + 16) }
    }
}
