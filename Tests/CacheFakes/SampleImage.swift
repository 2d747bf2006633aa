import CacheCore
import NIOCore

/// Small images that differ by their label: a PNG header, the label, then padding.
public enum SampleImage {
    /// - Parameters:
    ///   - label: distinguishes images; contained in the bytes as text.
    ///   - size: the total number of bytes, at least 33 plus the label's length.
    public static func png(_ label: String, size: Int = 128, width: UInt32 = 16, height: UInt32 = 16) -> ByteBuffer {
        var bytes = ByteBuffer(bytes: [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A])
        bytes.writeInteger(UInt32(13))
        bytes.writeString("IHDR")
        bytes.writeInteger(width)
        bytes.writeInteger(height)
        // Eight bits of gray, deflate, not interlaced. The checksum is not read.
        bytes.writeBytes([8, 0, 0, 0, 0])
        bytes.writeInteger(UInt32(0))
        bytes.writeString(label)
        bytes.writeRepeatingByte(0, count: max(0, size - bytes.readableBytes))
        return bytes
    }

    /// The label of an image from ``png(_:size:width:height:)``.
    public static func label(of image: ByteBuffer) -> String {
        String(decoding: image.readableBytesView.dropFirst(33).prefix { $0 != 0 }, as: UTF8.self)
    }

    /// The outcome of a download of such an image.
    public static func downloaded(
        _ label: String, size: Int = 128, headers: [String: [String]] = [:], framing: ReplyFraming = .bare
    ) -> DownloadOutcome {
        .image(
            DownloadedImage(
                bytes: ImageBytes(copying: png(label, size: size), framing: framing),
                shape: ImageShape(kind: .png, width: 16, height: 16), headers: ResponseHeaders(headers)))
    }

    /// A digest that differs for different bytes. Not SHA-256, which only the real store computes.
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
