import CLinux
import Glibc
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import SocketLoops

/// Writes down what becomes of a stream.
final class Witness: StreamHandler, Sendable {
    struct Seen: Sendable {
        var bytes = ""
        var hasInputEnded = false
        var moves = 0
        /// Times that it was asked whether more may be sent, and what it says.
        var questions = 0
        var maySend = true
        var closes = 0
        var error: CInt?
    }

    private let seen = NIOLockedValueBox(Seen())
    private let onBytes: @Sendable (String) -> Void

    init(onBytes: @escaping @Sendable (String) -> Void = { _ in }) {
        self.onBytes = onBytes
    }

    var now: Seen { seen.withLockedValue { $0 } }

    func received(_ bytes: ByteBuffer) {
        let text = String(buffer: bytes)
        seen.withLockedValue { $0.bytes += text }
        onBytes(text)
    }

    func inputEnded() { seen.withLockedValue { $0.hasInputEnded = true } }
    var maySend: Bool {
        get {
            seen.withLockedValue { seen in
                seen.questions += 1
                return seen.maySend
            }
        }
        set { seen.withLockedValue { $0.maySend = newValue } }
    }

    func mayProceed() -> Bool { maySend }
    func outputMoved() { seen.withLockedValue { $0.moves += 1 } }

    func closed(_ error: IOError?) {
        seen.withLockedValue {
            $0.closes += 1
            $0.error = error?.errnoCode
        }
    }
}

/// A loop with one stream, and the other end of it in the test's hands.
struct Pair {
    let loop: SocketLoop
    let stream: NIOLoopBound<SocketLoops.Stream>
    let witness: Witness
    /// Blocks.
    let peer: CInt

    static func with(
        _ witness: Witness = Witness(), _ body: (Pair) async throws -> Void
    ) async throws {
        let loop = try SocketLoop()
        var ends: [CInt] = [-1, -1]
        try #require(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0)
        let (near, far) = (ends[0], ends[1])
        try #require(fcntl(near, F_SETFL, O_NONBLOCK) == 0)
        let stream = try await loop.submit {
            let stream = try loop.adopt(near)
            stream.handler = witness
            return NIOLoopBound(stream, eventLoop: loop)
        }.get()
        do {
            try await body(Pair(loop: loop, stream: stream, witness: witness, peer: far))
        } catch {
            close(far)
            try await loop.shutdownGracefully()
            throw error
        }
        close(far)
        try await loop.shutdownGracefully()
        #expect(witness.now.closes == 1)
    }

    /// Runs something on the loop.
    func onLoop<Value: Sendable>(_ body: @escaping @Sendable (SocketLoops.Stream) -> Value) async throws -> Value {
        let stream = stream
        return try await loop.submit { body(stream.value) }.get()
    }

    /// The loop has looked at its sockets since. Twice, because a round looks at them before it does what it was told.
    func pass() async throws {
        for _ in 0..<2 { try await loop.submit {}.get() }
    }

    func send(_ text: String) {
        let count = text.utf8.count
        #expect(Glibc.send(peer, text, count, CInt(MSG_NOSIGNAL)) == count)
    }

    /// Exactly so many bytes, waiting for them.
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

/// Waits until something holds that happens elsewhere; fails when a minute was not enough.
func eventually(_ condition: () async throws -> Bool, sourceLocation: SourceLocation = #_sourceLocation) async throws {
    for _ in 0..<60_000 {
        if try await condition() { return }
        try await Task.sleep(for: .milliseconds(1))
    }
    Issue.record("it did not come about", sourceLocation: sourceLocation)
}
