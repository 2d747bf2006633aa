import NIOCore
import SocketLoops

/// A refused connection until it closes. Reads and discards a bounded amount of input: with unread input, closing would
/// reset the connection before the peer has read the reason.
final class RefusedPeer: StreamHandler {
    private static let maximumInput = 64 << 10

    private unowned let stream: Stream
    private var read = 0

    init(_ stream: Stream) { self.stream = stream }

    func received(_ bytes: ByteBuffer) {
        read += bytes.readableBytes
        if read >= Self.maximumInput { stream.isReading = false }
    }

    func inputEnded() {}
    func outputMoved() {}
    func closed(_ error: IOError?) {}
}
