import Glibc
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import SocketLoops

@Suite(.timeLimit(.minutes(5))) struct StreamTests {
    /// More than the kernel buffers for a peer that does not read.
    private static let plenty = 4 << 20

    @Test func `input reaches the handler, and output the peer`() async throws {
        try await Pair.with { pair in
            pair.send("hello")
            try await eventually { pair.handler.now.bytes == "hello" }
            _ = try await pair.onLoop { stream in
                stream.write(ByteBuffer(string: "good"))
                stream.write(ByteBuffer())
                stream.write(ByteBuffer(string: " day"))
                stream.flush()
            }
            #expect(pair.receive(8) == Array("good day".utf8))
            #expect(try await pair.onLoop { $0.sent } == 8)
        }
    }

    @Test func `F17: send keeps the order, and the rest follows as the peer reads`() async throws {
        try await Pair.with { pair in
            let unsent = try await pair.onLoop { stream in
                stream.send(ByteBuffer(string: "first,"))
                stream.send(ByteBuffer())
                stream.write(ByteBuffer(string: "second,"))
                stream.send(ByteBuffer(string: "third,"))
                let sent = stream.sent
                stream.send(ByteBuffer(repeating: 7, count: Self.plenty))
                stream.send(ByteBuffer(string: "last"))
                return [sent, stream.sent + stream.unsent, stream.unsent]
            }
            let text = Array("first,second,third,".utf8)
            #expect(unsent[0] == text.count && unsent[1] == text.count + Self.plenty + 4 && unsent[2] > 0)
            let received = await Task.detached { pair.receive(unsent[1]) }.value
            #expect(received == text + [UInt8](repeating: 7, count: Self.plenty) + Array("last".utf8))
        }
    }

    @Test func `F17: bytes that a full socket does not accept are sent later`() async throws {
        try await Pair.with { pair in
            let piece = [UInt8](0..<100)
            let count = try await pair.onLoop { stream in
                var count = 0
                while stream.unsent == 0 {
                    stream.send(ByteBuffer(bytes: piece))
                    count += 1
                }
                return count
            }
            let received = await Task.detached { pair.receive(count * piece.count) }.value
            #expect(received == (0..<count).flatMap { _ in piece })
        }
    }

    @Test(arguments: [1, 63, 64, 65, 1_000])
    func `many replies are sent in order`(_ count: Int) async throws {
        try await Pair.with { pair in
            _ = try await pair.onLoop { stream in
                for number in 0..<count { stream.write(ByteBuffer(string: "\(number),")) }
                stream.flush()
            }
            let expected = (0..<count).map { "\($0)," }.joined()
            #expect(pair.receive(expected.utf8.count) == Array(expected.utf8))
        }
    }

    @Test func `I11: a sent buffer is given back once all of it is sent, unless something else reads it`() async throws
    {
        let pool = BufferPool()
        try await Pair.with(sentBuffers: pool) { pair in
            let size = 64 << 10
            let count = Self.plenty / size
            let kept = ByteBuffer(repeating: 255, count: size)
            let unsent = try await pair.onLoop { stream in
                stream.write(kept)
                for number in 1..<count {
                    var bytes = pool.buffer(capacity: size)
                    bytes.writeRepeatingByte(UInt8(number), count: size)
                    stream.write(bytes)
                }
                stream.flush()
                return stream.unsent
            }
            // One buffer is usually sent in part.
            #expect(unsent > 0 && pool.bytes <= Self.plenty - unsent - size)
            let received = await Task.detached { pair.receive(Self.plenty) }.value
            let expected = ([255] + (1..<UInt8(count))).flatMap { [UInt8](repeating: $0, count: size) }
            #expect(received == expected)
            try await eventually { pool.bytes == 512 << 10 }
            #expect(kept.readableBytesView.allSatisfy { $0 == 255 })
        }
    }

    @Test(arguments: [1, 7])
    func `F17: output that the kernel does not accept is counted, and sent as the peer reads`(
        _ pieces: Int
    ) async throws {
        try await Pair.with { pair in
            let bytes = (0..<Self.plenty).map { UInt8(truncatingIfNeeded: $0 / 251) }
            let unsent = try await pair.onLoop { stream in
                for piece in 0..<pieces {
                    let part = bytes[Self.plenty * piece / pieces..<Self.plenty * (piece + 1) / pieces]
                    stream.write(ByteBuffer(bytes: part))
                }
                stream.flush()
                return stream.unsent
            }
            #expect(unsent > 0 && unsent < Self.plenty)
            let received = await Task.detached { pair.receive(Self.plenty) }.value
            #expect(received == bytes)
            try await eventually { pair.handler.now.moves > 0 }
            #expect(try await pair.onLoop { [$0.unsent, $0.sent] } == [0, Self.plenty])
        }
    }

    @Test func `F66: output that the handler postpones waits for a later round`() async throws {
        try await Pair.with { pair in
            pair.handler.maySend = false
            let sent = try await pair.onLoop { stream in
                stream.write(ByteBuffer(repeating: 7, count: Self.plenty))
                stream.flush()
                return stream.sent
            }
            _ = await Task.detached { pair.receive(sent) }.value
            try await eventually { pair.handler.now.maySendCalls > 2 }
            #expect(try await pair.onLoop { $0.sent } == sent)
            #expect(pair.handler.now.moves == 0)
            pair.handler.maySend = true
            let rest = await Task.detached { pair.receive(Self.plenty - sent) }.value
            #expect(rest.count == Self.plenty - sent)
        }
    }

    @Test func `postponed output is sent once, after all ready sockets`() async throws {
        let log = NIOLockedValueBox<[String]>([])
        let first = NIOLockedValueBox<NIOLoopBound<SocketLoops.Stream>?>(nil)
        let postpone = { @Sendable in first.withLockedValue { $0 }?.value.postponeSend() }
        let handler = RecordingHandler { text in
            log.withLockedValue { $0.append(text) }
            postpone()
            postpone()
        } onPostponed: {
            log.withLockedValue { $0.append("sent") }
            postpone()
        }
        try await Pair.with(handler) { pair in
            first.withLockedValue { $0 = pair.stream }
            var ends: [CInt] = [-1, -1]
            try #require(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0)
            let (near, far) = (ends[0], ends[1])
            defer { close(far) }
            try #require(fcntl(near, F_SETFL, O_NONBLOCK) == 0)
            // Both peers send while the loop runs a task, so one round reads both sockets.
            let sent = try await pair.loop.submit { [loop = pair.loop, peer = pair.peer] in
                let other = try loop.adopt(near)
                other.handler = RecordingHandler { text in log.withLockedValue { $0.append(text) } }
                return [Glibc.send(peer, "a", 1, CInt(MSG_NOSIGNAL)), Glibc.send(far, "b", 1, CInt(MSG_NOSIGNAL))]
            }.get()
            #expect(sent == [1, 1])
            try await eventually { log.withLockedValue { $0.count } >= 3 }
            try await pair.pass()
            #expect(log.withLockedValue { $0 } == ["a", "b", "sent"])
        }
    }

    @Test func `output that a task postpones is sent in the same round`() async throws {
        let loop = NIOLockedValueBox<SocketLoop?>(nil)
        let sent = NIOLockedValueBox<[UInt64?]>([])
        let handler = RecordingHandler(onPostponed: {
            sent.withLockedValue { $0.append(loop.withLockedValue { $0?.round.number }) }
        })
        try await Pair.with(handler) { pair in
            loop.withLockedValue { $0 = pair.loop }
            let round = try await pair.onLoop { [loop = pair.loop] stream in
                stream.postponeSend()
                return loop.round.number
            }
            // Begins a later round.
            try await pair.pass()
            #expect(sent.withLockedValue { $0 } == [round])
            loop.withLockedValue { $0 = nil }
        }
    }

    @Test func `a closed stream sends no postponed output`() async throws {
        try await Pair.with { pair in
            _ = try await pair.onLoop { stream in
                stream.postponeSend()
                stream.close()
            }
            try await pair.pass()
            #expect(pair.handler.now.postponedSends == 0)
        }
    }

    @Test func `input that arrives while reading is paused is read later`() async throws {
        try await Pair.with { pair in
            _ = try await pair.onLoop { $0.isReading = false }
            pair.send("later")
            try await pair.pass()
            #expect(pair.handler.now.bytes == "")
            _ = try await pair.onLoop { $0.isReading = true }
            try await eventually { pair.handler.now.bytes == "later" }
        }
    }

    @Test func `a peer that has closed its output gets its replies`() async throws {
        try await Pair.with { pair in
            pair.send("last")
            shutdown(pair.peer, CInt(SHUT_WR))
            try await eventually { pair.handler.now.hasInputEnded }
            #expect(pair.handler.now.bytes == "last" && pair.handler.now.closes == 0)
            _ = try await pair.onLoop { stream in
                stream.write(ByteBuffer(string: "reply"))
                stream.flush()
            }
            #expect(pair.receive(5) == Array("reply".utf8))
        }
    }

    @Test(arguments: [true, false])
    func `F19: a close by the peer closes the stream, even while reading is paused`(_ isReading: Bool) async throws {
        var ends: [CInt] = [-1, -1]
        try #require(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &ends) == 0)
        let (near, far) = (ends[0], ends[1])
        let loop = try SocketLoop()
        let handler = RecordingHandler()
        try await loop.submit {
            let stream = try loop.adopt(near)
            stream.handler = handler
            stream.isReading = isReading
        }.get()
        #expect(send(far, "bye", 3, 0) == 3)
        close(far)
        try await eventually { handler.now.closes == 1 }
        #expect(handler.now.bytes == (isReading ? "bye" : ""))
        #expect(handler.now.hasInputEnded == isReading)
        try await loop.shutdownGracefully()
        #expect(handler.now.closes == 1)
    }

    @Test func `I2: after the peer has closed, tasks find the stream closed, and all input is delivered`() async throws
    {
        let loop = try SocketLoop()
        var ends: [CInt] = [-1, -1]
        try #require(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &ends) == 0)
        let (near, far) = (ends[0], ends[1])
        let closes = NIOLockedValueBox<[Int]>([])
        let watched = NIOLockedValueBox<RecordingHandler?>(nil)
        let handler = RecordingHandler { _ in
            // As a command does: in a task after the current one.
            loop.execute {
                closes.withLockedValue { closes in closes.append(watched.withLockedValue { $0?.now.closes ?? -1 }) }
            }
        }
        watched.withLockedValue { $0 = handler }
        let bytes = String(repeating: "x", count: 100_000)
        try #require(send(far, bytes, bytes.utf8.count, 0) == bytes.utf8.count)
        close(far)
        try await loop.submit { try loop.adopt(near).handler = handler }.get()
        try await eventually { handler.now.closes == 1 }
        try await loop.shutdownGracefully()
        watched.withLockedValue { $0 = nil }
        #expect(handler.now.bytes == bytes && handler.now.hasInputEnded)
        #expect(closes.withLockedValue { !$0.isEmpty && $0.allSatisfy { $0 == 1 } })
    }

    @Test func `F19: a peer that closes with unread output causes an error after its input`()
        async throws
    {
        let loop = try SocketLoop()
        var ends: [CInt] = [-1, -1]
        try #require(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &ends) == 0)
        let (near, far) = (ends[0], ends[1])
        let handler = RecordingHandler()
        try await loop.submit {
            let stream = try loop.adopt(near)
            stream.handler = handler
            stream.write(ByteBuffer(string: "unread"))
            stream.flush()
            _ = send(far, "last words", 10, 0)
            close(far)
        }.get()
        try await eventually { handler.now.closes == 1 }
        #expect(handler.now.bytes == "last words")
        #expect(handler.now.error == ECONNRESET)
        try await loop.shutdownGracefully()
    }

    @Test func `an unwatchable descriptor is an error and closed`() async throws {
        let loop = try SocketLoop()
        // epoll does not support regular files (EPERM).
        let file = open("/dev/null", O_RDWR | O_CLOEXEC)
        // The descriptor's number is above any that the loop has watched.
        let high = fcntl(file, F_DUPFD_CLOEXEC, 500)
        close(file)
        try #require(high >= 500)
        await #expect(throws: IOError.self) { try await loop.submit { _ = try loop.adopt(high) }.get() }
        try await loop.shutdownGracefully()
    }

    @Test(arguments: [true, false])
    func `F19: a write to a closed peer closes the stream without a signal`(sends: Bool) async throws {
        var ends: [CInt] = [-1, -1]
        try #require(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &ends) == 0)
        let (near, far) = (ends[0], ends[1])
        let loop = try SocketLoop()
        let handler = RecordingHandler()
        try await loop.submit {
            let stream = try loop.adopt(near)
            stream.handler = handler
            close(far)
            for _ in 0..<2 {
                let text = ByteBuffer(string: "anybody there?")
                if sends { stream.send(text) } else { stream.write(text) }
            }
            stream.flush()
            stream.write(ByteBuffer(string: "no"))
            stream.flush()
        }.get()
        #expect(handler.now.closes == 1)
        #expect(handler.now.error == EPIPE)
        try await loop.shutdownGracefully()
    }

    @Test func `no call follows a close from within a call`() async throws {
        let closing = NIOLockedValueBox<NIOLoopBound<SocketLoops.Stream>?>(nil)
        let handler = RecordingHandler { _ in closing.withLockedValue { $0 }?.value.close() }
        try await Pair.with(handler) { pair in
            closing.withLockedValue { $0 = pair.stream }
            pair.send("x")
            try await eventually { handler.now.closes == 1 }
            #expect(pair.receive(1) == [])
            _ = try await pair.onLoop { stream in
                stream.write(ByteBuffer(string: "too late"))
                stream.flush()
                stream.isReading = false
                stream.close()
            }
            #expect(handler.now.closes == 1 && !handler.now.hasInputEnded)
        }
    }
}
