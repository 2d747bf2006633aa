import FetcherProtocol
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore
import SocketLoops
import ThumbnailCache

/// The connection to one fetcher, from its start to its end. On the loop alone.
final class FetcherConnection: StreamHandler {
    private let stream: SocketLoops.Stream
    private let client: FetcherClient
    private var assembler: MessageAssembler
    /// What is being sent, to be wiped then: tokens may be in it.
    private var unwiped: [ByteBuffer] = []
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
        unwiped.append(bytes)
        stream.flush()
        outputMoved()
    }

    func outputMoved() {
        guard stream.unsent == 0 else { return }
        for bytes in unwiped { bytes.wipeReadableBytesOfAll() }
        unwiped = []
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
        for bytes in unwiped { bytes.wipeReadableBytesOfAll() }
        unwiped = []
        assembler.clear()
        client.lost(error.map { "\($0)" } ?? reason)
    }
}
