import NIOCore

/// A user, a profile or a session as a client named it: 1 to 512 opaque bytes, compared byte by byte.
///
/// Nothing is read into the bytes. They never become a path, a log line or an error text.
public struct OpaqueID: Hashable, Sendable {
    /// Most are short, and lie in place: a hit then finds its image without a look at other memory, which saves 0.3 µs
    /// where a thousand images are asked for in turn. What fits is always short: so equal ones are of one kind.
    private enum Storage: Equatable {
        case short(ShortBytes)
        case long(ByteBuffer)
    }

    private let storage: Storage

    /// Takes the bytes as they are: a long identifier then keeps alive the whole storage that `bytes` is a slice of.
    /// Right for a look-up, wrong for something that is kept; see ``detached()``.
    public init(_ bytes: ByteBuffer) {
        self = bytes.withUnsafeReadableBytes { OpaqueID(short: $0) } ?? OpaqueID(storage: .long(bytes))
    }

    public init(_ string: String) {
        self.init(ByteBuffer(string: string))
    }

    /// Nil when there are too many bytes to lie in place.
    public init?(short bytes: UnsafeRawBufferPointer) {
        guard let short = ShortBytes(bytes) else { return nil }
        storage = .short(short)
    }

    private init(storage: Storage) {
        self.storage = storage
    }

    /// Not how it is held, which follows from the bytes.
    public func hash(into hasher: inout Hasher) {
        withBytes { hasher.combine(bytes: $0) }
    }

    public var count: Int {
        switch storage {
        case .short(let short): short.count
        case .long(let buffer): buffer.readableBytes
        }
    }

    /// Lends the bytes. They must not be kept.
    public func withBytes<Result, Failure: Error>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        switch storage {
        case .short(let short): try short.withBytes(body)
        case .long(let buffer): try buffer.withUnsafeReadableBytes(body)
        }
    }

    /// The same in storage of its own, to be kept beyond the request it came with. A long one costs an allocation.
    public func detached() -> OpaqueID {
        guard case .long(let buffer) = storage else { return self }
        return OpaqueID(storage: .long(ByteBuffer(bytes: buffer.readableBytesView)))
    }
}

/// At most 31 bytes, in place. The last byte is how many; those that are not used are 0.
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

/// Whom a cache belongs to: the uid that the kernel reported and the account that the request named.
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

/// Room for one image in a user's cache: a profile in one size and style.
public struct ImageKey: Hashable, Sendable {
    public let profile: OpaqueID
    /// The size in the lower 13 bits, the style's number in the others: one word, for a hit looks it up. Part of the
    /// disk format.
    public let code: UInt16

    /// Pixels, 1 to 4096; 0 stands for a request without SIZE, which is an image key of its own.
    public var size: UInt16 { code & Self.sizes }
    public var style: RenditionStyle { RenditionStyle(number: UInt8(code >> 13)) }

    private static let sizes: UInt16 = 0x1FFF

    public init(profile: OpaqueID, size: UInt16 = 0, style: RenditionStyle = .plain) {
        self.init(profile: profile, code: size & Self.sizes | UInt16(style.number) << 13)
    }

    /// - Parameter code: of another image key.
    public init(profile: OpaqueID, code: UInt16) {
        self.profile = profile
        self.code = code
    }

    public func detached() -> ImageKey {
        ImageKey(profile: profile.detached(), code: code)
    }

    /// Whether the image in the image key of a code can be what the one in another image key of its profile is made from: the
    /// image of no size, and for a style that of the same size.
    public static func canBeSource(_ code: UInt16, of other: UInt16) -> Bool {
        code != other && (code == 0 || code == other & sizes)
    }
}
