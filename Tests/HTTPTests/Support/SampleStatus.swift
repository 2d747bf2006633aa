import NIOCore

@testable import Thumbcache

extension ImageStatus {
    /// A status of an image of 6 bytes. The library makes one only from a reply.
    static func sample(
        digest: String = String(repeating: "a", count: 64), type: String = "image/png", timeToLive: Int64? = 60,
        state: State = .fresh
    ) -> ImageStatus {
        ImageStatus(
            digest: digest, type: type, length: 6, width: 1, height: 1, age: .zero,
            timeToLive: timeToLive.map { .seconds($0) }, state: state, source: .memory, epoch: 1, rendered: nil)
    }
}

extension ThumbcacheImage {
    static func sample(_ status: ImageStatus = .sample(), _ bytes: String = "<png>\n") -> ThumbcacheImage {
        ThumbcacheImage(bytes: ByteBuffer(string: bytes), status: status)
    }
}
