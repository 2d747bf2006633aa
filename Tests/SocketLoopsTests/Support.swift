import CLinux
import Glibc
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import SocketLoops

/// A stream handler that records its calls.
final class RecordingHandler: StreamHandler, Sendable {
    struct Record: Sendable {
        var bytes = ""
        var hasInputEnded = false
        var moves = 0
        var postponedSends = 0
        /// Calls of ``maySend``, and its value.
        var maySendCalls = 0
        var maySend = true
        var closes = 0
        var error: CInt?
    }

    private let seen = NIOLockedValueBox(Record())
    private let onBytes: @Sendable (String) -> Void
    private let onPostponed: @Sendable () -> Void

    init(
        onBytes: @escaping @Sendable (String) -> Void = { _ in }, onPostponed: @escaping @Sendable () -> Void = {}
    ) {
        self.onBytes = onBytes
        self.onPostponed = onPostponed
    }

    var now: Record { seen.withLockedValue { $0 } }

    func received(_ bytes: ByteBuffer) {
        let text = String(buffer: bytes)
        seen.withLockedValue { $0.bytes += text }
        onBytes(text)
    }

    func inputEnded() { seen.withLockedValue { $0.hasInputEnded = true } }
    var maySend: Bool {
        get {
            seen.withLockedValue { seen in
                seen.maySendCalls += 1
                return seen.maySend
            }
        }
        set { seen.withLockedValue { $0.maySend = newValue } }
    }

    func mayProceed() -> Bool { maySend }
    func outputMoved() { seen.withLockedValue { $0.moves += 1 } }

    func sendPostponed() {
        seen.withLockedValue { $0.postponedSends += 1 }
        onPostponed()
    }

    func closed(_ error: IOError?) {
        seen.withLockedValue {
            $0.closes += 1
            $0.error = error?.errnoCode
        }
    }
}

/// A loop with one stream, and the stream's peer.
struct Pair {
    let loop: SocketLoop
    let stream: NIOLoopBound<SocketLoops.Stream>
    let handler: RecordingHandler
    /// A blocking socket.
    let peer: CInt

    static func with(
        _ handler: RecordingHandler = RecordingHandler(), sentBuffers: BufferPool? = nil,
        _ body: (Pair) async throws -> Void
    ) async throws {
        let loop = try SocketLoop(sentBuffers: sentBuffers)
        var ends: [CInt] = [-1, -1]
        try #require(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0)
        let (near, far) = (ends[0], ends[1])
        try #require(fcntl(near, F_SETFL, O_NONBLOCK) == 0)
        let stream = try await loop.submit {
            let stream = try loop.adopt(near)
            stream.handler = handler
            return NIOLoopBound(stream, eventLoop: loop)
        }.get()
        do {
            try await body(Pair(loop: loop, stream: stream, handler: handler, peer: far))
        } catch {
            close(far)
            try await loop.shutdownGracefully()
            throw error
        }
        close(far)
        try await loop.shutdownGracefully()
        #expect(handler.now.closes == 1)
    }

    /// Runs `body` on the loop.
    func onLoop<Value: Sendable>(_ body: @escaping @Sendable (SocketLoops.Stream) -> Value) async throws -> Value {
        let stream = stream
        return try await loop.submit { body(stream.value) }.get()
    }

    /// Waits until the loop has polled its sockets. Twice, since a round polls before it runs tasks.
    func pass() async throws {
        for _ in 0..<2 { try await loop.submit {}.get() }
    }

    func send(_ text: String) {
        let count = text.utf8.count
        #expect(Glibc.send(peer, text, count, CInt(MSG_NOSIGNAL)) == count)
    }

    /// Reads `count` bytes. Blocks.
    func receive(_ count: Int) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        var filled = 0
        while filled < count {
            let got = bytes.withUnsafeMutableBytes {
                recv(peer, $0.baseAddress?.advanced(by: filled), count - filled, 0)
            }
            guard got > 0 else { break }
            filled += got
        }
        return Array(bytes.prefix(filled))
    }
}

/// Polls until the condition holds. Fails after a minute.
func eventually(_ condition: () async throws -> Bool, sourceLocation: SourceLocation = #_sourceLocation) async throws {
    for _ in 0..<60_000 {
        if try await condition() { return }
        try await Task.sleep(for: .milliseconds(1))
    }
    Issue.record("the condition did not hold within a minute", sourceLocation: sourceLocation)
}
