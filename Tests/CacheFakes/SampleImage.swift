import CacheCore
import NIOCore

/// Small images that differ by their label: a whole PNG header, then the label, then padding.
public enum SampleImage {
    /// - Parameters:
    ///   - label: what tells the image from others; readable in its bytes.
    ///   - size: bytes in all, at least 33 and the label's.
    public static func png(_ label: String, size: Int = 128, width: UInt32 = 16, height: UInt32 = 16) -> ByteBuffer {
        var bytes = ByteBuffer(bytes: [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A])
        bytes.writeInteger(UInt32(13))
        bytes.writeString("IHDR")
        bytes.writeInteger(width)
        bytes.writeInteger(height)
        // Eight bits of grey, deflate, no interlace; the checksum is not looked at.
        bytes.writeBytes([8, 0, 0, 0, 0])
        bytes.writeInteger(UInt32(0))
        bytes.writeString(label)
        bytes.writeRepeatingByte(0, count: max(0, size - bytes.readableBytes))
        return bytes
    }

    /// The label that ``png(_:size:width:height:)`` put in.
    public static func label(of image: ByteBuffer) -> String {
        String(decoding: image.readableBytesView.dropFirst(33).prefix { $0 != 0 }, as: UTF8.self)
    }

    /// What a download of such an image ends with.
    public static func downloaded(
        _ label: String, size: Int = 128, headers: [String: [String]] = [:], framing: ReplyFraming = .bare
    ) -> DownloadOutcome {
        .image(
            DownloadedImage(
                bytes: ImageBytes(copying: png(label, size: size), framing: framing),
                shape: ImageShape(kind: .png, width: 16, height: 16), headers: ResponseHeaders(headers)))
    }

    /// A digest that tells images of different bytes apart: not SHA-256, which is the store's business.
    public static func digest(of image: ByteBuffer) -> ImageDigest {
        var words: [UInt64] = [0xcbf2_9ce4_8422_2325, 1, 2, 3]
        for byte in image.readableBytesView {
            for index in words.indices { words[index] = (words[index] ^ UInt64(byte)) &* 0x100_0000_01b3 }
        }
        let bytes = words.flatMap { word in (0..<8).map { UInt8(truncatingIfNeeded: word >> (8 * UInt64($0))) } }
        guard let digest = ImageDigest(bytes) else { preconditionFailure("four words are 32 bytes") }
        return digest
    }
}
