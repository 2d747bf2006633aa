import Glibc
import Logging
import NIOCore

/// Pauses accepting when descriptors or memory are short. Without the pause the event loop would be woken at once for the
/// connection that it could not take, again and again.
final class AcceptPause: ChannelInboundHandler {
    typealias InboundIn = any Channel

    private static var pause: TimeAmount { .milliseconds(100) }
    private let log: Logger
    private var isPaused = false
    /// Since the last connection that was taken, one could not be: told once, however long it lasts.
    private var isShort = false

    init(log: Logger) {
        self.log = log
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        if isShort {
            isShort = false
            log.notice("connections are accepted again")
        }
        context.fireChannelRead(data)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard let error = error as? IOError, [EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(error.errnoCode) else {
            log.debug("a connection could not be accepted", metadata: ["error": "\(error)"])
            return
        }
        guard !isPaused else { return }
        isPaused = true
        if !isShort {
            isShort = true
            log.warning("no connection can be accepted for now; trying again", metadata: ["error": "\(error)"])
        }
        let channel = context.channel
        // Setting the option on the loop takes effect at once; it fails only for a channel that is closed.
        channel.setOption(.autoRead, value: false).assumeIsolated().whenComplete { _ in
            channel.eventLoop.assumeIsolated().scheduleTask(in: Self.pause) {
                self.isPaused = false
                channel.setOption(.autoRead, value: true).whenComplete { _ in channel.read() }
            }
        }
    }
}
