import NIOConcurrencyHelpers
import NIOCore

/// The image that the operator configured for profiles without one. It belongs to no user, is stored in no cache, and
/// is read again at each reload.
public final class FallbackImage: Sendable, Equatable {
    private let bytes: ByteBuffer
    private let shape: ImageShape
    private let made = NIOLockedValueBox<Image?>(nil)

    /// - Throws: ``ImageRefusal`` if the bytes are not an image or exceed the dimensions.
    public init(_ bytes: ByteBuffer, maximumDimension: Int) throws(ImageRefusal) {
        self.bytes = bytes
        shape = try ImageSniffer.sniff(bytes, maximumDimension: maximumDimension)
    }

    /// Compares identity first, because origins are compared for each download.
    public static func == (one: FallbackImage, two: FallbackImage) -> Bool {
        one === two || one.bytes == two.bytes
    }

    func image(_ framing: ReplyFraming, digest: (ByteBuffer) -> ImageDigest) -> Image {
        made.withLockedValue { made in
            if let made { return made }
            let record = ImageRecord(
                shape: shape, digest: digest(bytes), provenance: .put,
                freshness: Freshness(storedAt: 0, lifetime: 0))
            let image = Image(record: record, bytes: ImageBytes(copying: bytes, framing: framing))
            made = image
            return image
        }
    }
}
