import CLinux
import Glibc
import HelperProtocol
import LinuxSupport
import NIOCore

/// The program that decodes pictures for this one: a worker of `thumbcached-renderer`, which can do nothing else.
/// Whoever breaks into it through a picture gets at nothing, and says nothing here but what colour pixels are.
struct PictureDecoder {
    private static let name = "thumbcached-renderer"
    /// As many as a camera makes.
    private static let mostPixels: UInt32 = 50_000_000
    /// Seconds. A worker gives a picture up after 10.
    private static let patience = 15

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
                "there is no \(Self.name), which decodes pictures, at \(places.joined(separator: " or ")); "
                    + "install the package of that name, or have the picture in a file with 'get --output'")
        }
        self.program = program
    }

    /// A picture inside a square of so many pixels; never larger than it is.
    func pixels(_ source: ByteBuffer, side: Int) throws(Failure) -> Pixels {
        guard source.readableBytes <= RenderRequest.longestPicture else {
            throw Failure(.refused, "a picture of \(source.readableBytes) bytes is too large to be drawn")
        }
        let (answer, bytes): (RenderAnswer, [UInt8])
        do throws(SystemError) {
            (answer, bytes) = try ask(source, side: UInt16(clamping: max(1, side)))
        } catch {
            throw Failure(.refused, "\(Self.name) cannot draw the picture: \(error)")
        }
        switch answer.outcome {
        case .rendered where answer.format == .pixels:
            return Pixels(width: Int(answer.width), height: Int(answer.height), bytes: bytes)
        case .tooManyPixels: throw Failure(.refused, "the picture has more than \(Self.mostPixels) pixels")
        case .unknownFormat: throw Failure(.refused, "it is no PNG, JPEG, GIF, WebP or AVIF")
        case .rendered, .broken: throw Failure(.refused, "the picture is broken: nothing can be drawn of it")
        }
    }

    private func ask(_ source: ByteBuffer, side: UInt16) throws(SystemError) -> (RenderAnswer, [UInt8]) {
        let (handing, taking) = try SocketPair.make()
        let child = try ChildProgram(program, input: taking.descriptor, errors: STDERR_FILENO)
        let (ours, theirs) = try SocketPair.make()
        guard clinux_send_descriptor(handing.descriptor, theirs.descriptor, 0) == 0 else {
            throw SystemError("hand over a socket")
        }
        // Without these the end of the worker would not be the end of what can be read.
        theirs.close()
        taking.close()
        try ours.setPatience(seconds: Self.patience)
        var frame = ByteBuffer()
        WorkerLimits(pixels: Self.mostPixels).write(to: &frame)
        RenderRequest(length: source.readableBytes, number: 1, side: side, fit: .contain, format: .pixels)
            .write(to: &frame)
        frame.writeImmutableBuffer(source)
        try ours.send(Array(frame.readableBytesView))
        guard try ours.receive(1) == [WorkerGreeting.byte] else { throw SystemError("start a worker", code: EPROTO) }
        var head = ByteBuffer(bytes: try ours.receive(RenderAnswer.headLength))
        // It is no larger than what was asked for, or it is none.
        guard let answer = RenderAnswer(&head), answer.number == 1, answer.width <= side, answer.height <= side else {
            throw SystemError("understand the answer", code: EPROTO)
        }
        let bytes = try ours.receive(answer.length)
        // Its workers end with it.
        child.end()
        _ = child.wait()
        return (answer, bytes)
    }
}

/// One end of a pair of sockets, which is closed when this goes.
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

    func setPatience(seconds: Int) throws(SystemError) {
        var patience = timeval(tv_sec: seconds, tv_usec: 0)
        for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
            let result = setsockopt(descriptor, SOL_SOCKET, option, &patience, socklen_t(MemoryLayout<timeval>.size))
            guard result == 0 else { throw SystemError("setsockopt") }
        }
    }

    func send(_ bytes: [UInt8]) throws(SystemError) {
        var rest = bytes[...]
        while !rest.isEmpty {
            let sent = try retryingInterrupts("send") {
                rest.withUnsafeBytes { Glibc.send(descriptor, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL)) }
            }
            rest = rest.dropFirst(sent)
        }
    }

    func receive(_ count: Int) throws(SystemError) -> [UInt8] {
        var bytes: [UInt8] = []
        var room = [UInt8](repeating: 0, count: min(count, 64 << 10))
        while bytes.count < count {
            let most = min(room.count, count - bytes.count)
            let got = try retryingInterrupts("receive") { recv(descriptor, &room, most, 0) }
            guard got > 0 else { throw SystemError("receive the picture", code: EPIPE) }
            bytes += room.prefix(got)
        }
        return bytes
    }
}
