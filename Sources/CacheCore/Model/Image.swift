import LinuxSupport
import NIOCore

/// The supported image formats. Raw values are part of the disk format.
public enum ImageKind: UInt8, Sendable, CaseIterable {
    case png = 1
    case jpeg = 2
    case gif = 3
    case webp = 4
    case avif = 5

    public var mediaType: String {
        switch self {
        case .png: "image/png"
        case .jpeg: "image/jpeg"
        case .gif: "image/gif"
        case .webp: "image/webp"
        case .avif: "image/avif"
        }
    }
}

/// Format and dimensions of an image, read from its header by ``ImageSniffer``.
public struct ImageShape: Hashable, Sendable {
    public let kind: ImageKind
    /// Pixels, at least 1.
    public let width: UInt32
    public let height: UInt32

    public init(kind: ImageKind, width: UInt32, height: UInt32) {
        self.kind = kind
        self.width = width
        self.height = height
    }
}

/// The SHA-256 of an image's bytes.
public struct ImageDigest: Hashable, Sendable {
    private let start: SIMD16<UInt8>
    private let end: SIMD16<UInt8>

    /// Nil unless there are exactly 32 bytes.
    public init?(_ bytes: UnsafeRawBufferPointer) {
        guard bytes.count == 32 else { return nil }
        start = bytes.loadUnaligned(as: SIMD16<UInt8>.self)
        end = bytes.loadUnaligned(fromByteOffset: 16, as: SIMD16<UInt8>.self)
    }

    public init?(_ bytes: [UInt8]) {
        guard let digest = bytes.withUnsafeBytes({ ImageDigest($0) }) else { return nil }
        self = digest
    }

    public var bytes: [UInt8] { withUnsafeBytes(of: (start, end)) { Array($0) } }

    /// Lower-case hexadecimal, 64 characters.
    public var hex: String { withUnsafeBytes(of: (start, end)) { Hex.text($0) } }
}

/// Where an image came from.
public enum Provenance: Hashable, Sendable {
    /// PUT by a client.
    case put
    /// Downloaded from this normalized URL.
    case url(String)
}

/// Metadata of an image, encrypted on disk with its bytes.
public struct ImageRecord: Hashable, Sendable {
    public var shape: ImageShape
    public var digest: ImageDigest
    public var provenance: Provenance
    public var freshness: Freshness
    /// Header fields of the origin's response; empty for a PUT.
    public var fields: StoredFields
    /// The normalized URL of the last redirect, if any.
    public var redirectedTo: String?
    /// The family of tokens that may use it (``LoginTokens/family``); nil for all.
    public var tokenFamily: UInt32?
    /// Whether an upstream before that of the image failed, so that the failed one may have another image.
    public var isStandIn: Bool
    /// The digest of the source if the image is a rendition; everything except ``shape`` and ``digest`` is then the
    /// source's. Nil for an image served as received.
    public var sourceDigest: ImageDigest?

    public init(
        shape: ImageShape, digest: ImageDigest, provenance: Provenance, freshness: Freshness,
        fields: StoredFields = StoredFields(), redirectedTo: String? = nil, tokenFamily: UInt32? = nil,
        isStandIn: Bool = false, sourceDigest: ImageDigest? = nil
    ) {
        self.shape = shape
        self.digest = digest
        self.provenance = provenance
        self.freshness = freshness
        self.fields = fields
        self.redirectedTo = redirectedTo
        self.tokenFamily = tokenFamily
        self.isStandIn = isStandIn
        self.sourceDigest = sourceDigest
    }
}

/// A record on the heap, shared by the copies of an image: it has 300 bytes, and an image from disk is copied 8 times.
public final class SharedRecord: Sendable {
    public let record: ImageRecord

    public init(_ record: ImageRecord) {
        self.record = record
    }
}

public struct Image: Sendable {
    public let sharedRecord: SharedRecord
    public internal(set) var bytes: ImageBytes

    public var record: ImageRecord { sharedRecord.record }

    public init(_ sharedRecord: SharedRecord, bytes: ImageBytes) {
        self.sharedRecord = sharedRecord
        self.bytes = bytes
    }

    public init(record: ImageRecord, bytes: ImageBytes) {
        self.init(SharedRecord(record), bytes: bytes)
    }
}

/// An image's bytes in one buffer with the prefix and suffix of its reply, so that a hit copies nothing.
public struct ImageBytes: Sendable {
    public private(set) var framed: ByteBuffer
    private let prefixLength: Int
    /// Bytes of the image alone.
    public let count: Int

    var storage: Int { framed.storageCapacity }

    public var image: ByteBuffer {
        framed.getSlice(at: framed.readerIndex + prefixLength, length: count) ?? ByteBuffer()
    }

    /// Overwrites the bytes with zeros, unless the buffer is shared, for example with a reply being sent.
    mutating func wipe() {
        framed.wipe()
    }
}

/// How a reply frames an image. Injected, since the domain does not know the wire encoding.
public struct ReplyFraming: Sendable {
    /// Writes the prefix of an image of `count` bytes to the end of `room`, which has ``ImageBytes/Builder/headroom``
    /// bytes, and returns its length. In place, since an array would cost 1,000 instructions for each image from disk.
    public let writePrefix: @Sendable (_ count: Int, _ room: UnsafeMutableRawBufferPointer) -> Int
    public let suffix: [UInt8]

    public init(
        writePrefix: @escaping @Sendable (_ count: Int, _ room: UnsafeMutableRawBufferPointer) -> Int, suffix: [UInt8]
    ) {
        self.writePrefix = writePrefix
        self.suffix = suffix
    }

    /// No prefix and no suffix.
    public static let bare = ReplyFraming(writePrefix: { _, _ in 0 }, suffix: [])
}

extension ImageBytes {
    /// Collects the bytes of an image of unknown length, after room for the prefix.
    public struct Builder: Sendable {
        /// Bytes kept free before the image.
        public static let headroom = 24

        /// The image is from index ``headroom`` to the writer index. Only append to it.
        public var buffer: ByteBuffer

        /// - Parameter capacity: bytes of image to reserve.
        public init(capacity: Int = 0) {
            self.init(in: ByteBufferAllocator().exactBuffer(capacity: Self.size(forImageOf: capacity)))
        }

        /// Uses a buffer that the caller has allocated.
        /// - Parameter buffer: empty, with a capacity of ``size(forImageOf:)``.
        public init(in buffer: consuming ByteBuffer) {
            self.buffer = consume buffer
            self.buffer.writeRepeatingByte(0, count: Self.headroom)
        }

        /// Bytes of a buffer for an image and its frame.
        public static func size(forImageOf length: Int) -> Int { headroom + length + 2 }

        public var count: Int { buffer.writerIndex - Self.headroom }

        /// Adds the frame in place and leaves the builder empty. Not consuming: callers would pass a second reference,
        /// and every image would be copied.
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
