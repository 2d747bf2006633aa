import CLinux
import CPictureProbe
import Foundation
import Glibc
import HelperProtocol
import LinuxSupport
import NIOCore
import Testing

/// The real program, started as a daemon of one's own starts it.
final class Renderer {
    /// The end by which connections are handed over.
    private let handing: CInt
    /// 0 once it has ended.
    private var pid = pid_t()
    /// A connection whose worker has not greeted yet.
    let firstWorker: RendererWorker?

    /// - Parameters:
    ///   - environment: beside that of the test.
    ///   - idle: seconds without a connection after which the program ends.
    ///   - hasWorker: whether to hand over a connection before the program starts: ``firstWorker``.
    init(environment: [String: String] = [:], idle: Int = 600, hasWorker: Bool = false) throws {
        let (ours, theirs) = try Self.pair()
        handing = ours
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

    /// What nobody waits for would keep the test runner's own thread for processes busy.
    deinit {
        close(handing)
        if pid != 0 { waitpid(pid, nil, 0) }
    }

    /// A connection, behind which the renderer has put a worker.
    func worker(mostPixels: UInt32 = 50_000_000) throws -> RendererWorker {
        let worker = try Self.connect(through: handing, mostPixels: mostPixels)
        try #require(try worker.receive(1) == [WorkerGreeting.byte])
        return worker
    }

    private static func connect(
        through handing: CInt, mostPixels: UInt32 = 50_000_000
    ) throws -> RendererWorker {
        let (ours, theirs) = try pair()
        defer { close(theirs) }
        guard clinux_send_descriptor(handing, theirs, 0) == 0 else { throw SystemError("hand over a connection") }
        let worker = RendererWorker(ours)
        var limits = ByteBuffer()
        WorkerLimits(pixels: mostPixels).write(to: &limits)
        try worker.send(Array(limits.readableBytesView))
        return worker
    }

    /// The processes of the workers that live.
    func workers() throws -> [pid_t] {
        let children = try readTextFile("/proc/\(pid)/task/\(pid)/children", limit: 4096)
        return children.split(separator: " ").compactMap { pid_t($0) }
    }

    /// Ends it, as a daemon does that goes, and returns its status.
    func end() throws -> CInt {
        shutdown(handing, Int32(SHUT_RDWR))
        return try waitForEnd()
    }

    /// Returns its status once it has ended by itself.
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

/// The daemon's end of a worker's connection.
final class RendererWorker {
    private let descriptor: CInt

    init(_ descriptor: CInt) {
        self.descriptor = descriptor
        // A worker that hangs fails its test.
        var patience = timeval(tv_sec: 120, tv_usec: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, socklen_t(MemoryLayout<timeval>.size))
    }

    deinit { close(descriptor) }

    /// Ends the connection, as a daemon does that needs the worker no more.
    func hangUp() { shutdown(descriptor, CInt(SHUT_RDWR)) }

    struct Ended: Error {}

    /// The answer to a request, and the rendition's bytes.
    /// - Throws: ``Ended`` when the worker has ended.
    func render(
        _ source: [UInt8], side: UInt16, fit: PictureFit = .cover, format: PictureFormat = .source
    ) throws -> (answer: RenderAnswer, bytes: [UInt8]) {
        try ask(source, side: side, fit: fit, format: format)
        return try answer()
    }

    /// Sends a request whose answer is not waited for.
    func ask(
        _ source: [UInt8], side: UInt16, fit: PictureFit = .cover, format: PictureFormat = .source
    ) throws {
        let request = RenderRequest(length: source.count, number: 4711, side: side, fit: fit, format: format)
        var frame = ByteBuffer()
        request.write(to: &frame)
        frame.writeBytes(source)
        try send(Array(frame.readableBytesView))
    }

    func answer() throws -> (answer: RenderAnswer, bytes: [UInt8]) {
        var head = ByteBuffer(bytes: try receive(RenderAnswer.headLength))
        let answer = try #require(RenderAnswer(&head))
        #expect(answer.number == 4711)
        return (answer, try receive(answer.length))
    }

    func send(_ bytes: [UInt8]) throws {
        var rest = bytes[...]
        while !rest.isEmpty {
            let sent = rest.withUnsafeBytes { Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            guard sent > 0 else { throw Ended() }
            rest = rest.dropFirst(sent)
        }
    }

    func receive(_ count: Int) throws -> [UInt8] {
        var bytes: [UInt8] = []
        while bytes.count < count {
            let piece = try receiveSome(count - bytes.count)
            if piece.isEmpty { throw Ended() }
            bytes += piece
        }
        return bytes
    }

    /// Nothing at the end.
    func receiveSome(_ most: Int) throws -> [UInt8] {
        var room = [UInt8](repeating: 0, count: most)
        let count = recv(descriptor, &room, most, 0)
        if count < 0 && errno == ECONNRESET { return [] }
        guard count >= 0 else { throw SystemError("hear of a worker") }
        return Array(room[..<count])
    }
}

/// A picture as somebody sees it.
struct SeenPicture {
    let width, height: Int
    let bands: Int
    let hasProfile: Bool
    let colours: [UInt8]

    init(_ bytes: [UInt8]) throws {
        var picture = cprobe_picture()
        try #require(cprobe_decode(bytes, bytes.count, &picture) == 0, "no picture")
        defer { free(picture.colours) }
        (width, height, bands) = (Int(picture.width), Int(picture.height), Int(picture.bands))
        hasProfile = picture.has_profile != 0
        colours = Array(UnsafeBufferPointer(start: picture.colours, count: width * height * 3))
    }

    /// Red, green and blue at a place, in parts of the width and height.
    func colour(_ x: Double, _ y: Double) -> [UInt8] {
        let pixel = Int(y * Double(height)) * width + Int(x * Double(width))
        return Array(colours[pixel * 3..<pixel * 3 + 3])
    }

    /// Whether it shows the tests' scene, upright: red and green above blue and white.
    func showsScene(tolerance: Int = 40) -> Bool {
        let seen = [colour(0.25, 0.25), colour(0.75, 0.25), colour(0.25, 0.75), colour(0.75, 0.75)]
        let due: [[Int]] = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]]
        return zip(seen, due).allSatisfy { colour, due in
            zip(colour, due).allSatisfy { abs(Int($0) - $1) <= tolerance }
        }
    }
}

enum Pictures {
    /// An interlaced PNG of 16 bits with opacity: its decoder holds all of it.
    static func large(side: Int) throws -> [UInt8] {
        var (bytes, length): (UnsafeMutableRawPointer?, Int) = (nil, 0)
        try #require(cprobe_make_large(CInt(side), &bytes, &length) == 0, "no picture was made")
        defer { cprobe_free(bytes) }
        return Array(UnsafeRawBufferPointer(start: bytes, count: length))
    }

    static func named(_ name: String) throws -> [UInt8] {
        let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appendingPathComponent("Pictures")
        return Array(try Data(contentsOf: folder.appendingPathComponent(name)))
    }
}
