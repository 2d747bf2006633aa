import NIOCore
import SocketLoops

/// A peer that was told why it is refused. What it sends is read for a moment, else it would find its connection broken
/// before it has read the reason; but no more than a first request or two, since nobody pays for it.
final class RefusedPeer: StreamHandler {
    private static let most = 64 << 10

    private unowned let stream: Stream
    private var read = 0

    init(_ stream: Stream) { self.stream = stream }

    func received(_ bytes: ByteBuffer) {
        read += bytes.readableBytes
        if read >= Self.most { stream.isReading = false }
    }

    func inputEnded() {}
    func outputMoved() {}
    func closed(_ error: IOError?) {}
}
