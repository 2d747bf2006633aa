import CLinux
import Glibc
import HelperProtocol
import ImageOptions
import LinuxSupport
import NIOCore

/// Decodes images in a confined worker of `thumbcached-renderer`, which returns only pixel values.
struct ImageDecoder {
    private static let name = "thumbcached-renderer"
    private static let mostPixels: UInt32 = 50_000_000
    /// Milliseconds. A worker gives up an image after 10 s.
    private static let timeout: Int64 = 15_000

    private let program: String

    init() throws(Failure) {
        let places: [String]
        do throws(SystemError) {
            places = Programs.places(Self.name, beside: try Programs.ownDirectory())
        } catch {
            throw Failure(.refused, "\(error)")
        }
        guard let program = places.first(where: { access($0, X_OK) == 0 }) else {
            throw Failure(
                .refused,
                "\(Self.name), which decodes images, not found at \(places.joined(separator: " or ")); "
                    + "install the package of that name, or write the image to a file with 'get --output'")
        }
        self.program = program
    }

    func pixels(_ source: ByteBuffer, side: Int) throws(Failure) -> Pixels {
        guard source.readableBytes <= RenderRequest.maximumImage else {
            throw Failure(
                .refused,
                "the image has \(source.readableBytes) bytes; at most \(RenderRequest.maximumImage) can be drawn")
        }
        let (reply, bytes): (RenderReply, [UInt8])
        do {
            (reply, bytes) = try render(source, side: UInt16(clamping: max(1, side)))
        } catch {
            throw Failure(.refused, "\(Self.name) cannot decode the image: \(error)")
        }
        switch reply.outcome {
        case .rendered where reply.output == .pixels:
            return Pixels(width: Int(reply.width), height: Int(reply.height), bytes: bytes)
        case .tooManyPixels: throw Failure(.refused, "the image has more than \(Self.mostPixels) pixels")
        case .unknownFormat: throw Failure(.refused, "unknown image format; expected PNG, JPEG, GIF, WebP or AVIF")
        case .rendered, .broken: throw Failure(.refused, "the image is damaged and cannot be decoded")
        }
    }

    private func render(_ source: ByteBuffer, side: UInt16) throws -> (RenderReply, [UInt8]) {
        let (control, rendererEnd) = try SocketPair.make()
        let child = try ChildProgram(program, input: rendererEnd.descriptor, errors: STDERR_FILENO)
        let (connection, workerEnd) = try SocketPair.make()
        guard clinux_send_descriptor(control.descriptor, workerEnd.descriptor, 0) == 0 else {
            throw SystemError("pass a socket to the renderer")
        }
        // Otherwise this process would keep the worker's end open, and reads would not end with the worker.
        workerEnd.close()
        rendererEnd.close()
        guard fcntl(connection.descriptor, F_SETFL, O_NONBLOCK) == 0 else { throw SystemError("fcntl") }
        let brokenPipe = signal(SIGPIPE, SIG_IGN)
        defer { signal(SIGPIPE, brokenPipe) }
        let socket = MessageSocket(connection.descriptor)
        let deadline = socket.deadline(in: Self.timeout)
        let request = RenderRequest(number: 1, side: side, fit: .contain, output: .pixels)
        var message = ByteBuffer()
        WorkerLimits(pixels: Self.mostPixels).write(to: &message)
        request.write(to: &message, body: source.readableBytes)
        try socket.send(message, body: source, by: deadline)
        guard let (greeting, _) = try socket.receive(by: deadline), case _ = try WorkerGreeting(greeting),
            let (fields, body) = try socket.receive(maximumBody: 4 * Int(side) * Int(side), by: deadline)
        else { throw SystemError("receive the image", code: EPIPE) }
        let reply = try RenderReply(fields, body: body.readableBytes, to: request)
        // Its workers exit with it.
        child.end()
        _ = child.wait()
        return (reply, Array(body.readableBytesView))
    }
}

/// One end of a socket pair, closed when it is deallocated.
private final class SocketPair {
    private(set) var descriptor: CInt

    private init(_ descriptor: CInt) { self.descriptor = descriptor }

    static func make() throws(SystemError) -> (SocketPair, SocketPair) {
        var ends: [CInt] = [-1, -1]
        let type = CInt(SOCK_STREAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue)
        guard socketpair(AF_UNIX, type, 0, &ends) == 0 else { throw SystemError("socketpair") }
        return (SocketPair(ends[0]), SocketPair(ends[1]))
    }

    deinit { close() }

    func close() {
        if descriptor >= 0 { Glibc.close(descriptor) }
        descriptor = -1
    }
}
