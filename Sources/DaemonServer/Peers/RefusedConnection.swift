import NIOCore
import SocketLoops
import ThumbcacheProtocol

/// Tells a peer that is not let in why, then closes.
///
/// Not at once: a client that writes its first requests before it reads would find the connection broken, and never see
/// the reason. So the close waits until the peer has seen the end, for a moment at most.
final class RefusedConnection: StreamHandler {
    /// How long a refused peer may keep a descriptor busy.
    static var linger: TimeAmount { .milliseconds(100) }

    private let stream: Stream
    private let registry: PeerRegistry
    /// Beyond so many it closes without waiting.
    private let mayLinger: Bool
    private var deadline: Scheduled<Void>?

    init(_ stream: Stream, registry: PeerRegistry) {
        self.stream = stream
        self.registry = registry
        mayLinger = registry.linger(limit: DaemonServer.refusedAtOnce)
    }

    func tell(_ error: CommandError, on eventLoop: SocketLoop) {
        stream.handler = self
        if mayLinger {
            deadline = eventLoop.assumeIsolated().scheduleTask(in: Self.linger) { [stream] in stream.close() }
        }
        stream.write(.error(error))
        stream.flush()
        if mayLinger { stream.endOutput() } else { stream.close() }
    }

    func received(_: ByteBuffer) {}
    func inputEnded() { stream.close() }
    func outputMoved() {}

    func closed(_: IOError?) {
        deadline?.cancel()
        if mayLinger { registry.endLingering() }
    }
}
