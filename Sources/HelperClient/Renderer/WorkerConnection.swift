import Glibc
import HelperProtocol
import NIOCore

/// The daemon's end of a connection to one worker of the renderer. One thread uses it at a time, and closes it once.
struct WorkerConnection: Sendable {
    /// Milliseconds for one image. The worker ends itself after 10 s.
    private static var renderTimeout: Int64 { 12_000 }
    /// Milliseconds for the greeting. A worker on an idle machine takes 15.
    private static var greetingTimeout: Int64 { 5_000 }

    struct Closed: Error, CustomStringConvertible {
        let description = "the worker closed the connection"
    }

    private let socket: MessageSocket

    init(_ descriptor: CInt, now: @escaping @Sendable () -> Int64) { socket = MessageSocket(descriptor, now: now) }

    func close() { Glibc.close(socket.descriptor) }

    /// Makes a thread that waits for the worker fail.
    func interrupt() { shutdown(socket.descriptor, CInt(SHUT_RDWR)) }

    /// Sends the limits, and blocks until the worker has greeted. Throws if it ends, or does not greet in time.
    func greet(_ limits: WorkerLimits) throws {
        let deadline = socket.deadline(in: Self.greetingTimeout)
        var message = ByteBuffer()
        limits.write(to: &message)
        try socket.send(message, by: deadline)
        guard let (fields, _) = try socket.receive(by: deadline) else { throw Closed() }
        _ = try WorkerGreeting(fields)
    }

    /// Sends a source image, and blocks until the reply. Returns nil if the source cannot be rendered.
    /// - Throws: if the worker ends, takes too long, or sends an invalid reply.
    func render(_ request: RenderRequest, _ source: ByteBuffer, maximumBytes: Int) throws -> ByteBuffer? {
        let deadline = socket.deadline(in: Self.renderTimeout)
        var message = ByteBuffer()
        request.write(to: &message, body: source.readableBytes)
        try socket.send(message, body: source, by: deadline)
        guard let (fields, body) = try socket.receive(maximumBody: maximumBytes, by: deadline) else { throw Closed() }
        let reply = try RenderReply(fields, body: body.readableBytes, to: request)
        return reply.outcome == .rendered ? body : nil
    }
}
