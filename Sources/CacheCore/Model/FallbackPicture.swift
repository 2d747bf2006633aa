import NIOConcurrencyHelpers
import NIOCore

/// The picture of an operator's choice that is served where an origin says that there is none. It is nobody's image:
/// it is kept in no cache, and read anew with the configuration.
public final class FallbackPicture: Sendable, Equatable {
    private let bytes: ByteBuffer
    private let shape: ImageShape
    /// Made when it is first wanted, and once.
    private let made = NIOLockedValueBox<Image?>(nil)

    /// - Throws: ``ImageRefusal`` for what is no image, or has longer sides.
    public init(_ bytes: ByteBuffer, maximumDimension: Int) throws(ImageRefusal) {
        self.bytes = bytes
        shape = try ImageSniffer.sniff(bytes, maximumDimension: maximumDimension)
    }

    /// Origins are compared for each download: that does not look through a picture, unless it was read anew.
    public static func == (one: FallbackPicture, two: FallbackPicture) -> Bool {
        one === two || one.bytes == two.bytes
    }

    /// Ready to be sent. Nothing is known of how long it is good.
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
