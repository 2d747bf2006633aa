import CacheCore
import DequeModule
import HelperProtocol
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore
import SocketLoops

/// The connection to one fetcher. Used on the loop only.
final class FetcherConnection: StreamHandler {
    private let stream: SocketLoops.Stream
    private let client: FetcherClient
    private var assembler: MessageAssembler
    /// Unsent bytes beyond which the connection is closed.
    private static var maximumUnsent: Int { 16 << 20 }

    /// Written buffers, which may contain tokens and are wiped once sent, with the stream's byte count at their ends.
    private var unwiped: Deque<(bytes: ByteBuffer, end: Int)> = []
    private var written = 0
    /// The reason to log when the connection is closed; nil if the client closed it without a failure.
    private var failure: String? = "closed the connection"
    /// Whether a timer waits for a pong.
    var isWatched = false

    init(_ stream: SocketLoops.Stream, client: FetcherClient) {
        (self.stream, self.client) = (stream, client)
        assembler = MessageAssembler(maximumBody: client.state.withLockedValue { $0.settings.maximumImageBytes })
        stream.handler = self
    }

    var isOpen: Bool { stream.isOpen }

    func close(_ failure: String? = nil) {
        self.failure = failure
        stream.close()
    }

    func send(_ bytes: ByteBuffer) {
        guard bytes.readableBytes > 0 else { return }
        stream.write(bytes)
        written += bytes.readableBytes
        unwiped.append((bytes, written))
        stream.flush()
        outputMoved()
        if stream.unsent > Self.maximumUnsent {
            close("does not read its input")
        }
    }

    func outputMoved() {
        while let (bytes, end) = unwiped.first, end <= stream.sent {
            bytes.wipeReadableBytesOfAll()
            unwiped.removeFirst()
        }
    }

    func received(_ bytes: ByteBuffer) {
        // Never lowered: images requested under a higher limit may still arrive.
        let maximum = client.state.withLockedValue { $0.settings.maximumImageBytes }
        assembler.maximumBody = max(assembler.maximumBody, maximum)
        do throws(MessageError) {
            try assembler.receive(bytes) { [client] fields, body throws(MessageError) in
                try client.handle(try FetcherReport(fields), body: &body)
            }
        } catch {
            close("\(error)")
        }
    }

    func inputEnded() { stream.close() }

    func closed(_ error: IOError?) {
        stream.isReading = false
        for (bytes, _) in unwiped { bytes.wipeReadableBytesOfAll() }
        unwiped = []
        assembler.clear()
        client.closed(error.map { "\($0)" } ?? failure)
    }
}
