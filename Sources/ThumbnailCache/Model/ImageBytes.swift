import LinuxSupport
import NIOCore

/// An image's bytes lying ready to be sent: in one buffer, between the prefix and the suffix of the reply that
/// carries them, so that a hit hands the connection one buffer and copies nothing.
public struct ImageBytes: Sendable {
    /// Prefix, image and suffix.
    public private(set) var framed: ByteBuffer
    private let prefixLength: Int
    /// Bytes of the image alone.
    public let count: Int

    /// Bytes of memory that it takes.
    var storage: Int { framed.storageCapacity }

    /// The image alone, sharing the storage.
    public var image: ByteBuffer {
        framed.getSlice(at: framed.readerIndex + prefixLength, length: count) ?? ByteBuffer()
    }

    /// Overwrites the bytes with zeros, unless somebody else holds them too: a reply on its way, above all. Then they go with
    /// the last of those, as they are.
    mutating func wipe() {
        framed.wipe()
    }

    fileprivate init(framed: ByteBuffer, prefixLength: Int, count: Int) {
        self.framed = framed
        self.prefixLength = prefixLength
        self.count = count
    }
}

/// How a reply frames an image. The domain does not know the encoding; whoever composes the program hands it in.
public struct ReplyFraming: Sendable {
    /// Writes what stands before an image of `count` bytes to the end of `room`, which has ``ImageBytes/Builder/headroom`` bytes,
    /// and returns how many bytes that is. In place, since an array would cost each image from disk 1,000 instructions.
    public let writePrefix: @Sendable (_ count: Int, _ room: UnsafeMutableRawBufferPointer) -> Int
    public let suffix: [UInt8]

    public init(
        writePrefix: @escaping @Sendable (_ count: Int, _ room: UnsafeMutableRawBufferPointer) -> Int, suffix: [UInt8]
    ) {
        self.writePrefix = writePrefix
        self.suffix = suffix
    }

    /// No frame at all.
    public static let bare = ReplyFraming(writePrefix: { _, _ in 0 }, suffix: [])
}

extension ImageBytes {
    /// Collects image bytes, of a length not yet known, behind room for the prefix.
    public struct Builder: Sendable {
        /// Bytes kept free before the image.
        public static let headroom = 24

        /// The image so far lies from index ``headroom`` to the writer index. Append to it; do not read or move back.
        public var buffer: ByteBuffer

        /// - Parameter capacity: bytes of image to make room for at once.
        public init(capacity: Int = 0) {
            buffer = ByteBufferAllocator().buffer(capacity: Self.headroom + capacity + 2)
            buffer.writeRepeatingByte(0, count: Self.headroom)
        }

        /// Bytes of image so far.
        public var count: Int { buffer.writerIndex - Self.headroom }

        /// Puts the frame around what was collected, and leaves the builder empty. Copies nothing: it works where the bytes
        /// lie. (A consuming function was handed a second reference by its callers, and copied every image.)
        public mutating func finish(_ framing: ReplyFraming) -> ImageBytes {
            let count = self.count
            let prefixLength = buffer.withUnsafeMutableReadableBytes { bytes in
                framing.writePrefix(count, UnsafeMutableRawBufferPointer(rebasing: bytes[..<Self.headroom]))
            }
            precondition(prefixLength <= Self.headroom, "a reply prefix fits into the headroom")
            buffer.moveReaderIndex(to: Self.headroom - prefixLength)
            buffer.writeBytes(framing.suffix)
            defer { buffer = ByteBuffer() }
            return ImageBytes(framed: buffer, prefixLength: prefixLength, count: count)
        }
    }

    /// Copies `image` into a frame. Costs one allocation and one copy.
    public init(copying image: ByteBuffer, framing: ReplyFraming) {
        var builder = Builder(capacity: image.readableBytes)
        builder.buffer.writeImmutableBuffer(image)
        self = builder.finish(framing)
    }
}
