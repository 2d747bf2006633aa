import CacheCore
import NIOCore
import ThumbcacheProtocol

/// The form of an image reply that a request asks for.
struct ImageReplyFormat: Sendable {
    /// The keys of a map; nil for the image only.
    var keys: [MetaKey]?
    /// The reply is UNCHANGED if the image has this digest: 64 lower-case hexadecimal digits.
    var ifNot: ByteBuffer?

    /// A copy that does not retain the request.
    func detached() -> ImageReplyFormat {
        ImageReplyFormat(keys: keys, ifNot: ifNot.map { ByteBuffer(bytes: $0.readableBytesView) })
    }

    func reply(
        _ outcome: Result<ServedImage?, CacheFailure>, epoch: UInt64, now: Int64, _ version: RESPVersion
    ) -> Reply {
        switch outcome {
        case .failure(let failure):
            return Reply(.error(CommandError(failure)))
        case .success(nil):
            return Reply(.reply { $0.writeNull(kind: keys == nil ? .bulk : .map, version: version) })
        case .success(let served?):
            if let ifNot, ifNot.readableBytesView.elementsEqual(served.image.record.digest.hex.utf8) {
                return Reply(.reply { $0.writeSimpleString("UNCHANGED") })
            }
            guard let keys else { return Reply(served.image.bytes.framed) }
            return .meta(served, keys: keys, epoch: epoch, now: now, version)
        }
    }
}
