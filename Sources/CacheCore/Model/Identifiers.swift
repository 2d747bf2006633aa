import ImageOptions
import NIOCore

/// The id of a user, profile or session: 1 to 512 opaque bytes, compared byte by byte.
///
/// The bytes are never interpreted, and never part of a path, log line or error text.
public struct OpaqueID: Hashable, Sendable {
    /// Most ids are stored inline, so that a hit needs no other memory, which saves 0.3 µs if a thousand images are
    /// requested in turn. Ids that fit are always inline, so equal ids have the same case.
    private enum Storage: Equatable {
        case short(ShortBytes)
        case long(ByteBuffer)
    }

    private let storage: Storage

    /// Shares the storage of `bytes` if they are long, for a lookup. Use ``detached()`` for ids that are kept.
    public init(_ bytes: ByteBuffer) {
        self = bytes.withUnsafeReadableBytes { OpaqueID(short: $0) } ?? OpaqueID(storage: .long(bytes))
    }

    public init(_ string: String) {
        self.init(ByteBuffer(string: string))
    }

    public init?(short bytes: UnsafeRawBufferPointer) {
        guard let short = ShortBytes(bytes) else { return nil }
        storage = .short(short)
    }

    private init(storage: Storage) {
        self.storage = storage
    }

    /// Hashes the bytes only; equal ids have equal storage.
    public func hash(into hasher: inout Hasher) {
        withBytes { hasher.combine(bytes: $0) }
    }

    public var count: Int {
        switch storage {
        case .short(let short): short.count
        case .long(let buffer): buffer.readableBytes
        }
    }

    /// Calls `body` with the bytes, which must not be kept.
    public func withBytes<Result, Failure: Error>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        switch storage {
        case .short(let short): try short.withBytes(body)
        case .long(let buffer): try buffer.withUnsafeReadableBytes(body)
        }
    }

    /// A copy with its own storage, which may outlive the request. Allocates for a long id.
    public func detached() -> OpaqueID {
        guard case .long(let buffer) = storage else { return self }
        return OpaqueID(storage: .long(ByteBuffer(bytes: buffer.readableBytesView)))
    }
}

/// At most 31 bytes, inline. The last byte is the count; unused bytes are 0.
private struct ShortBytes: Equatable, Sendable {
    private var words: (UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0)

    init?(_ bytes: UnsafeRawBufferPointer) {
        guard bytes.count < MemoryLayout.size(ofValue: words) else { return nil }
        withUnsafeMutableBytes(of: &words) { own in
            own.copyMemory(from: bytes)
            own[own.count - 1] = UInt8(bytes.count)
        }
    }

    var count: Int { withUnsafeBytes(of: words) { Int($0[$0.count - 1]) } }

    func withBytes<Result, Failure: Error>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try withUnsafeBytes(of: words) { own throws(Failure) in
            try body(UnsafeRawBufferPointer(rebasing: own[..<Int(own[own.count - 1])]))
        }
    }

    static func == (left: Self, right: Self) -> Bool { left.words == right.words }
}

/// The owner of a cache: the uid that the kernel reports and the user that the request names.
public struct Owner: Hashable, Sendable {
    public let uid: UInt32
    public let user: OpaqueID

    public init(uid: UInt32, user: OpaqueID) {
        self.uid = uid
        self.user = user
    }

    public func detached() -> Owner {
        Owner(uid: uid, user: user.detached())
    }
}

/// The key of an image in a user's cache: a profile with size, fit and format.
public struct ImageKey: Hashable, Sendable {
    public let profile: OpaqueID
    /// Size in bits 0 to 12, format in 13 and 14, fit in 15: one word, since every hit hashes it. Part of the disk
    /// format.
    public let code: UInt16

    /// Pixels, 1 to 4096; 0 for a request without SIZE.
    public var size: UInt16 { code & Self.sizes }
    public var fit: ImageFit { ImageFit(byte: UInt8(code >> 15)) ?? .cover }
    public var format: ImageFormat { ImageFormat(byte: UInt8(code >> 13 & 3)) ?? .source }
    var imageSize: ImageSize { ImageSize(Int(size), fit: fit, format: format) }
    var isPlain: Bool { code == size }

    private static let sizes: UInt16 = 0x1FFF

    public init(profile: OpaqueID, size: UInt16 = 0, fit: ImageFit = .cover, format: ImageFormat = .source) {
        self.init(
            profile: profile, code: size & Self.sizes | UInt16(format.byte & 3) << 13 | UInt16(fit.byte & 1) << 15)
    }

    public init(profile: OpaqueID, fitting size: ImageSize?) {
        self.init(
            profile: profile, size: UInt16(clamping: size?.pixels ?? 0), fit: size?.fit ?? .cover,
            format: size?.format ?? .source)
    }

    public init(profile: OpaqueID, code: UInt16) {
        self.profile = profile
        self.code = code
    }

    /// Whether the image has the origin's size: no SIZE, FIT or FORMAT.
    public var isUnsized: Bool { code == 0 }

    public func detached() -> ImageKey {
        ImageKey(profile: profile.detached(), code: code)
    }

    /// Whether an image with one code can be the source of one with another: it has no size or, for FIT and FORMAT, the
    /// same size.
    public static func canBeSource(_ code: UInt16, of other: UInt16) -> Bool {
        code != other && (code == 0 || code == other & sizes)
    }
}
