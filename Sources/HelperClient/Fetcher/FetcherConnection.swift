import CacheCore
import DequeModule
import HelperProtocol
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore
import SocketLoops

/// The connection to one fetcher, from its start to its end. On the loop alone.
final class FetcherConnection: StreamHandler {
    private let stream: SocketLoops.Stream
    private let client: FetcherClient
    private var assembler: MessageAssembler
    /// Bytes that may wait for it to read them. Who does not is left.
    private static var mostUnsent: Int { 16 << 20 }

    /// What is being sent, to be wiped then: tokens may be in it. With how much will have been sent by its end.
    private var unwiped: Deque<(bytes: ByteBuffer, end: Int)> = []
    private var written = 0
    private var reason = "it closed the connection"
    /// Whether a timer looks after it.
    var isWatchedOver = false

    init(_ stream: SocketLoops.Stream, client: FetcherClient) {
        (self.stream, self.client) = (stream, client)
        assembler = MessageAssembler(longestBody: client.state.withLockedValue { $0.settings.maximumImageBytes })
        stream.handler = self
    }

    var isOpen: Bool { stream.isOpen }

    func close() {
        reason = "it was told to"
        stream.close()
    }

    func send(_ bytes: ByteBuffer) {
        guard bytes.readableBytes > 0 else { return }
        stream.write(bytes)
        written += bytes.readableBytes
        unwiped.append((bytes, written))
        stream.flush()
        outputMoved()
        if stream.unsent > Self.mostUnsent {
            reason = "it does not read"
            stream.close()
        }
    }

    func outputMoved() {
        while let (bytes, end) = unwiped.first, end <= stream.sent {
            bytes.wipeReadableBytesOfAll()
            unwiped.removeFirst()
        }
    }

    func received(_ bytes: ByteBuffer) {
        // What was asked for under a larger limit may still come.
        let longest = client.state.withLockedValue { $0.settings.maximumImageBytes }
        assembler.longestBody = max(assembler.longestBody, longest)
        do throws(MessageError) {
            try assembler.receive(bytes) { [client] fields, body throws(MessageError) in
                try client.take(try FetcherReport(fields), body: body)
            }
        } catch {
            reason = "a message of it \(error)"
            stream.close()
        }
    }

    func inputEnded() { stream.close() }

    func closed(_ error: IOError?) {
        stream.isReading = false
        for (bytes, _) in unwiped { bytes.wipeReadableBytesOfAll() }
        unwiped = []
        assembler.clear()
        client.lost(error.map { "\($0)" } ?? reason)
    }
}
