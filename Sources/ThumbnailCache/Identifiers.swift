import NIOCore

/// A user, a profile or a session as a client named it: 1 to 512 opaque bytes, compared byte by byte.
///
/// Nothing is read into the bytes. They never become a path, a log line or an error text.
public struct OpaqueID: Hashable, Sendable {
    /// The bytes themselves.
    public let bytes: ByteBuffer

    /// Takes the bytes as they are: the identifier then keeps alive the whole storage that `bytes` is a slice of.
    /// Right for a look-up, wrong for something that is kept; see ``detached()``.
    public init(_ bytes: ByteBuffer) {
        self.bytes = bytes
    }

    public init(_ string: String) {
        self.bytes = ByteBuffer(string: string)
    }

    /// The same identifier in storage of its own, to be kept beyond the request it came with. Costs one allocation.
    public func detached() -> OpaqueID {
        OpaqueID(ByteBuffer(bytes: bytes.readableBytesView))
    }
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

/// One place for one image in a user's cache: a profile in one size.
public struct Slot: Hashable, Sendable {
    public let profile: OpaqueID
    /// Pixels, 1 to 4096; 0 stands for a request without SIZE, which is a slot of its own.
    public let size: UInt16

    public init(profile: OpaqueID, size: UInt16 = 0) {
        self.profile = profile
        self.size = size
    }

    public func detached() -> Slot {
        Slot(profile: profile.detached(), size: size)
    }
}
