import CImageProbe
import CLinux
import Foundation
import Glibc
import HelperProtocol
import ImageOptions
import LinuxSupport
import NIOCore
import Testing

/// A process of the real program, started as a fork server starts it.
final class Renderer {
    /// The socket over which connections are passed.
    private let passing: CInt
    /// 0 once the process has ended.
    private var pid = pid_t()
    /// A connection whose greeting has not been received.
    let firstWorker: RendererWorker?

    /// - Parameters:
    ///   - environment: added to that of the test.
    ///   - idle: seconds without a connection after which the program exits.
    ///   - hasWorker: whether to pass a connection, ``firstWorker``, before the program starts.
    init(environment: [String: String] = [:], idle: Int = 600, hasWorker: Bool = false) throws {
        // Workers may end while a test writes to them.
        signal(SIGPIPE, SIG_IGN)
        let (ours, theirs) = try Self.pair()
        passing = ours
        firstWorker = hasWorker ? try Self.connect(through: ours) : nil
        defer { close(theirs) }
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, theirs, STDIN_FILENO)
        let built = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent().path
        let all = ProcessInfo.processInfo.environment.merging(environment) { $1 }
        let arguments: [UnsafeMutablePointer<CChar>?] = [
            strdup("thumbcached-renderer"), strdup("--idle"), strdup("\(idle)"), nil,
        ]
        let variables = all.map { strdup("\($0)=\($1)") } + [nil]
        defer { for text in arguments + variables { free(text) } }
        let code = posix_spawn(&pid, "\(built)/thumbcached-renderer", &actions, nil, arguments, variables)
        if code != 0 { throw SystemError("start the renderer", code: code) }
    }

    /// Reaps the process; otherwise the test runner's thread for processes would be busy with it.
    deinit {
        close(passing)
        if pid != 0 { waitpid(pid, nil, 0) }
    }

    /// A connection to a new worker, which has greeted.
    func worker(mostPixels: UInt32 = 50_000_000) throws -> RendererWorker {
        let worker = try Self.connect(through: passing, mostPixels: mostPixels)
        try worker.receiveGreeting()
        return worker
    }

    private static func connect(
        through passing: CInt, mostPixels: UInt32 = 50_000_000
    ) throws -> RendererWorker {
        let (ours, theirs) = try pair()
        defer { close(theirs) }
        guard clinux_send_descriptor(passing, theirs, 0) == 0 else { throw SystemError("pass a connection") }
        let worker = try RendererWorker(ours)
        var limits = ByteBuffer()
        WorkerLimits(pixels: mostPixels).write(to: &limits)
        try worker.send(limits)
        return worker
    }

    /// The ids of the running workers.
    func workers() throws -> [pid_t] {
        let children = try readTextFile("/proc/\(pid)/task/\(pid)/children", limit: 4096)
        return children.split(separator: " ").compactMap { pid_t($0) }
    }

    /// Ends the program as a daemon that exits does, and returns its status.
    func end() throws -> CInt {
        shutdown(passing, Int32(SHUT_RDWR))
        return try waitForEnd()
    }

    /// Waits until the program exits by itself, and returns its status.
    func waitForEnd() throws -> CInt {
        var status: CInt = 0
        guard waitpid(pid, &status, 0) == pid else { throw SystemError("waitpid") }
        pid = 0
        return status
    }

    private static func pair() throws -> (CInt, CInt) {
        var ends: [CInt] = [-1, -1]
        let type = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
        guard socketpair(AF_UNIX, type, 0, &ends) == 0 else { throw SystemError("socketpair") }
        return (ends[0], ends[1])
    }
}

/// The daemon's end of a connection to a worker.
final class RendererWorker {
    private let socket: MessageSocket

    /// - Parameter descriptor: closed at the end.
    init(_ descriptor: CInt) throws {
        socket = MessageSocket(descriptor)
        guard fcntl(descriptor, F_SETFL, O_NONBLOCK) == 0 else { throw SystemError("fcntl") }
    }

    deinit { close(socket.descriptor) }

    /// A worker that hangs fails its test.
    private var deadline: Int64 { socket.deadline(in: 120_000) }

    /// Ends the connection, as the daemon does with an idle worker.
    func hangUp() { shutdown(socket.descriptor, CInt(SHUT_RDWR)) }

    struct Ended: Error {}

    func receiveGreeting() throws { _ = try WorkerGreeting(receive(maximumBody: 0).fields) }

    /// Returns the reply to a request and the rendition.
    /// - Throws: ``Ended`` if the worker has ended.
    func render(
        _ source: [UInt8], side: UInt16, fit: ImageFit = .cover, output: RenderOutput = .file(.source)
    ) throws -> (reply: RenderReply, bytes: [UInt8]) {
        try reply(to: try request(source, side: side, fit: fit, output: output))
    }

    /// Sends a request, whose reply the caller receives with ``reply(to:)``.
    @discardableResult func request(
        _ source: [UInt8], side: UInt16, fit: ImageFit = .cover, output: RenderOutput = .file(.source)
    ) throws -> RenderRequest {
        let request = RenderRequest(number: 4711, side: side, fit: fit, output: output)
        var message = ByteBuffer()
        request.write(to: &message, body: source.count)
        try send(message, body: ByteBuffer(bytes: source))
        return request
    }

    func reply(to request: RenderRequest) throws -> (reply: RenderReply, bytes: [UInt8]) {
        let (fields, body) = try receive(maximumBody: RenderRequest.maximumImage)
        return (try RenderReply(fields, body: body.readableBytes, to: request), Array(body.readableBytesView))
    }

    func send(_ message: ByteBuffer, body: ByteBuffer = ByteBuffer()) throws {
        do {
            try socket.send(message, body: body, by: deadline)
        } catch {
            if error.code == EPIPE || error.code == ECONNRESET { throw Ended() }
            throw error
        }
    }

    private func receive(maximumBody: Int) throws -> (fields: ByteBuffer, body: ByteBuffer) {
        do {
            guard let message = try socket.receive(maximumBody: maximumBody, by: deadline) else { throw Ended() }
            return message
        } catch let error as SystemError where error.code == ECONNRESET {
            throw Ended()
        }
    }

    /// Bytes that are not a message; none once the worker has ended.
    func receiveBytes(atMost count: Int) throws -> [UInt8] {
        var wait = pollfd(fd: socket.descriptor, events: Int16(POLLIN), revents: 0)
        guard poll(&wait, 1, 120_000) > 0 else { throw SystemError("receive from a worker", code: ETIMEDOUT) }
        var bytes = [UInt8](repeating: 0, count: count)
        let received = recv(socket.descriptor, &bytes, count, 0)
        if received < 0 && errno == ECONNRESET { return [] }
        guard received >= 0 else { throw SystemError("receive from a worker") }
        return Array(bytes[..<received])
    }
}

/// An image decoded by the test's own decoder.
struct DecodedImage {
    let width, height: Int
    let bands: Int
    let hasProfile: Bool
    /// Red, green and blue of each pixel.
    let colors: [UInt8]

    init(_ bytes: [UInt8]) throws {
        var image = cprobe_image()
        try #require(cprobe_decode(bytes, bytes.count, &image) == 0, "the image cannot be decoded")
        defer { free(image.colors) }
        (width, height, bands) = (Int(image.width), Int(image.height), Int(image.bands))
        hasProfile = image.has_profile != 0
        colors = Array(UnsafeBufferPointer(start: image.colors, count: width * height * 3))
    }

    /// Red, green and blue at a position given as fractions of the width and height.
    func color(_ x: Double, _ y: Double) -> [UInt8] {
        let pixel = Int(y * Double(height)) * width + Int(x * Double(width))
        return Array(colors[pixel * 3..<pixel * 3 + 3])
    }

    /// Whether the image shows the scene of the test images, upright: red and green above blue and white.
    func showsScene(tolerance: Int = 40) -> Bool {
        let seen = [color(0.25, 0.25), color(0.75, 0.25), color(0.25, 0.75), color(0.75, 0.75)]
        let due: [[Int]] = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]]
        return zip(seen, due).allSatisfy { color, due in
            zip(color, due).allSatisfy { abs(Int($0) - $1) <= tolerance }
        }
    }
}

enum TestImages {
    /// An interlaced PNG with 16 bits and alpha, which its decoder keeps in memory as a whole.
    static func large(side: Int) throws -> [UInt8] {
        var (bytes, length): (UnsafeMutableRawPointer?, Int) = (nil, 0)
        try #require(cprobe_make_large(CInt(side), &bytes, &length) == 0, "the image was not created")
        defer { cprobe_free(bytes) }
        return Array(UnsafeRawBufferPointer(start: bytes, count: length))
    }

    static func named(_ name: String) throws -> [UInt8] {
        let directory = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appendingPathComponent("Images")
        return Array(try Data(contentsOf: directory.appendingPathComponent(name)))
    }
}
