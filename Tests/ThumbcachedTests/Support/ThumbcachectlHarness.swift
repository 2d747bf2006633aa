import Foundation
import NIOCore
import ThumbcacheProtocol

/// The result of a run of the built thumbcachectl against a fake daemon.
///
/// The test's thread plays the daemon in a fixed order, so that nothing depends on timing.
struct ThumbcachectlRun {
    let status: Int32
    let output: [UInt8]
    let errors: String
    /// The requests after HELLO.
    var requests: [[String]] = []

    var text: String { String(decoding: output, as: UTF8.self) }
}

/// The behavior of a fake daemon.
struct FakeDaemon {
    var hello =
        "%7\r\n$6\r\nserver\r\n$11\r\nthumbcached\r\n$7\r\nversion\r\n$5\r\n0.1.0\r\n$5\r\nproto\r\n:3\r\n"
        + "$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n"
    /// The encoded replies after HELLO. The connection is closed after the last one.
    var replies: [String] = []
    /// Replies on further connections, in order. These stay open until the program exits.
    var furtherConnections: [[String]] = []
    /// Stops reading after this number of bytes, sends the first reply and closes.
    var refusesAfter: Int?
}

enum Thumbcachectl {
    /// The program in the build directory, which also contains the test bundle.
    static let program = URL(filePath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent()
        .appending(path: "thumbcachectl")

    /// Runs the program without a daemon.
    static func run(
        _ arguments: [String], input: [UInt8] = [], environment: [String: String] = [:], terminal: Bool = false
    ) throws -> ThumbcachectlRun {
        try Fixture.withDirectory { directory in
            try start(arguments, input, environment, terminal, directory) { [] }
        }
    }

    /// Runs the program against `daemon`, with THUMBCACHED_SOCKET set.
    static func run(
        _ arguments: [String], input: [UInt8] = [], terminal: Bool = false, against daemon: FakeDaemon
    ) throws -> ThumbcachectlRun {
        try Fixture.withDirectory { directory in
            let path = "\(directory)/s"
            let listener = try UnixSocket.listen(path)
            defer { close(listener) }
            var open: [Int32] = []
            defer { for peer in open { close(peer) } }
            return try start(arguments, input, ["THUMBCACHED_SOCKET": path], terminal, directory) {
                var daemon = daemon
                var (requests, peer) = try serve(daemon, on: listener)
                close(peer)
                for replies in daemon.furtherConnections {
                    daemon.replies = replies
                    let further = try serve(daemon, on: listener)
                    requests += further.requests
                    open.append(further.peer)
                }
                return requests
            }
        }
    }

    /// Serves one connection of a program that the test has started.
    static func answer(_ replies: [String], on listener: Int32) throws {
        close(try serve(FakeDaemon(replies: replies), on: listener).peer)
    }

    private static func start(
        _ arguments: [String], _ input: [UInt8], _ environment: [String: String], _ terminal: Bool,
        _ directory: String, _ serve: () throws -> [[String]]
    ) throws -> ThumbcachectlRun {
        func file(_ name: String, _ bytes: [UInt8] = []) throws -> URL {
            let url = URL(filePath: "\(directory)/\(name)")
            try Data(bytes).write(to: url)
            return url
        }
        let (out, err) = (try file("out"), try file("err"))
        let process = Process()
        process.executableURL = program
        process.arguments = arguments
        // Leaks in swift-argument-parser must not change the exit status under AddressSanitizer.
        process.environment = environment.merging(["ASAN_OPTIONS": "detect_leaks=0"]) { given, _ in given }
        process.standardInput = try FileHandle(forReadingFrom: try file("in", input))
        process.standardError = try FileHandle(forWritingTo: err)
        let pseudoterminal = terminal ? try Pseudoterminal() : nil
        process.standardOutput = try pseudoterminal?.far ?? FileHandle(forWritingTo: out)

        try process.run()
        // Only the program keeps the far end, so reading ends when it exits.
        try pseudoterminal?.far.close()
        let requests = try serve()
        let shown = pseudoterminal?.readAll()
        process.waitUntilExit()
        return ThumbcachectlRun(
            status: process.terminationStatus, output: try shown ?? Array(Data(contentsOf: out)),
            errors: try String(contentsOf: err, encoding: .utf8), requests: requests)
    }

    private static func serve(
        _ daemon: FakeDaemon, on listener: Int32
    ) throws -> (requests: [[String]], peer: Int32) {
        let peer = try UnixSocket.accept(listener)
        var decoder = RequestDecoder(limits: RequestLimits())
        var received = ByteBuffer()
        var replies = [daemon.hello] + daemon.replies
        var requests: [[String]] = []
        var total = 0
        while !replies.isEmpty {
            if let request = try decoder.next(&received) {
                requests.append((0..<request.count).map { String(buffer: request[$0]) })
                try UnixSocket.write(peer, replies.removeFirst())
                continue
            }
            let bytes = try UnixSocket.read(peer)
            total += bytes.count
            if bytes.isEmpty { break }
            if let limit = daemon.refusesAfter, total > limit {
                try UnixSocket.write(peer, replies.removeFirst())
                break
            }
            received.writeBytes(bytes)
        }
        return (Array(requests.dropFirst()), peer)
    }
}

/// A pseudoterminal whose output a test reads.
private struct Pseudoterminal {
    let near: Int32
    let far: FileHandle

    init() throws {
        near = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC)
        // unlockpt and ptsname are not visible to Swift: ioctl_tty(2), TIOCSPTLCK and TIOCGPTN.
        var lock: Int32 = 0
        var number: Int32 = 0
        guard near >= 0, ioctl(near, 0x4004_5431, &lock) == 0, ioctl(near, 0x8004_5430, &number) == 0 else {
            throw POSIXError(.init(rawValue: errno) ?? .EIO)
        }
        let descriptor = open("/dev/pts/\(number)", O_RDWR | O_NOCTTY | O_CLOEXEC)
        guard descriptor >= 0 else { throw POSIXError(.init(rawValue: errno) ?? .EIO) }
        far = FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
    }

    /// Reads the output until EIO, which marks the end of the last program.
    func readAll() -> [UInt8] {
        defer { close(near) }
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 4096)
        while true {
            let count = read(near, &chunk, chunk.count)
            if count <= 0 { return bytes.filter { $0 != UInt8(ascii: "\r") } }
            bytes += chunk.prefix(count)
        }
    }
}

/// Blocking Unix sockets for tests.
enum UnixSocket {
    static func address(_ path: String) -> sockaddr_un {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8.prefix(107)) }
        return address
    }

    static func make(_ type: __socket_type = SOCK_STREAM) throws -> Int32 {
        try check(socket(AF_UNIX, Int32(type.rawValue | SOCK_CLOEXEC.rawValue), 0))
    }

    static func bind(_ path: String, _ type: __socket_type = SOCK_STREAM) throws -> Int32 {
        let descriptor = try make(type)
        var address = address(path)
        try withUnsafePointer(to: &address) {
            try $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                _ = try check(Foundation.bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size)))
            }
        }
        return descriptor
    }

    static func listen(_ path: String) throws -> Int32 {
        let descriptor = try bind(path)
        _ = try check(Foundation.listen(descriptor, 8))
        return descriptor
    }

    /// Returns the errno of connect(2), or 0.
    static func connect(_ path: String) throws -> (descriptor: Int32, code: Int32) {
        let descriptor = try make()
        var address = address(path)
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                Foundation.connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        return (descriptor, result == 0 ? 0 : errno)
    }

    /// Accepts a connection, with a timeout so that a failing test does not hang.
    static func accept(_ listener: Int32) throws -> Int32 {
        var poll = pollfd(fd: listener, events: Int16(POLLIN), revents: 0)
        guard try check(Foundation.poll(&poll, 1, 60_000)) == 1 else { throw POSIXError(.ETIMEDOUT) }
        return try check(Foundation.accept(listener, nil, nil))
    }

    static func read(_ descriptor: Int32) throws -> ArraySlice<UInt8> {
        var chunk = [UInt8](repeating: 0, count: 64 << 10)
        let count = try check(Int32(Foundation.read(descriptor, &chunk, chunk.count)))
        return chunk.prefix(Int(count))
    }

    static func write(_ descriptor: Int32, _ text: String) throws {
        let bytes = Array(text.utf8)
        let count = send(descriptor, bytes, bytes.count, Int32(MSG_NOSIGNAL))
        guard count == bytes.count else { throw POSIXError(.init(rawValue: errno) ?? .EIO) }
    }

    private static func check(_ result: Int32) throws -> Int32 {
        guard result >= 0 else { throw POSIXError(.init(rawValue: errno) ?? .EIO) }
        return result
    }
}
