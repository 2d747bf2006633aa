import Glibc
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import SocketLoops

@Suite(.timeLimit(.minutes(5))) struct StreamTests {
    /// More than the kernel takes for a peer that does not read.
    private static let plenty = 4 << 20

    @Test func `what the peer sends is told, what is written reaches it`() async throws {
        try await Pair.with { pair in
            pair.send("hello")
            try await eventually { pair.witness.now.bytes == "hello" }
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

    @Test(arguments: [1, 63, 64, 65, 1_000])
    func `many replies leave in one go, in their order`(_ count: Int) async throws {
        try await Pair.with { pair in
            _ = try await pair.onLoop { stream in
                for number in 0..<count { stream.write(ByteBuffer(string: "\(number),")) }
                stream.flush()
            }
            let expected = (0..<count).map { "\($0)," }.joined()
            #expect(pair.receive(expected.utf8.count) == Array(expected.utf8))
        }
    }

    @Test(arguments: [1, 7])
    func `F17: what the kernel does not take waits, is counted, and goes by itself as the peer reads`(
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
            try await eventually { pair.witness.now.moves > 0 }
            #expect(try await pair.onLoop { [$0.unsent, $0.sent] } == [0, Self.plenty])
        }
    }

    @Test func `F66: what may not be sent yet waits for a later round, however fast the peer reads`() async throws {
        try await Pair.with { pair in
            pair.witness.maySend = false
            let sent = try await pair.onLoop { stream in
                stream.write(ByteBuffer(repeating: 7, count: Self.plenty))
                stream.flush()
                return stream.sent
            }
            _ = await Task.detached { pair.receive(sent) }.value
            try await eventually { pair.witness.now.questions > 2 }
            #expect(try await pair.onLoop { $0.sent } == sent)
            #expect(pair.witness.now.moves == 0)
            pair.witness.maySend = true
            let rest = await Task.detached { pair.receive(Self.plenty - sent) }.value
            #expect(rest.count == Self.plenty - sent)
        }
    }

    @Test func `what comes while reading pauses is read when it goes on`() async throws {
        try await Pair.with { pair in
            _ = try await pair.onLoop { $0.isReading = false }
            pair.send("later")
            try await pair.pass()
            #expect(pair.witness.now.bytes == "")
            _ = try await pair.onLoop { $0.isReading = true }
            try await eventually { pair.witness.now.bytes == "later" }
        }
    }

    @Test func `a peer that has said all still gets its replies`() async throws {
        try await Pair.with { pair in
            pair.send("last")
            shutdown(pair.peer, CInt(SHUT_WR))
            try await eventually { pair.witness.now.hasInputEnded }
            #expect(pair.witness.now.bytes == "last" && pair.witness.now.closes == 0)
            _ = try await pair.onLoop { stream in
                stream.write(ByteBuffer(string: "reply"))
                stream.flush()
            }
            #expect(pair.receive(5) == Array("reply".utf8))
        }
    }

    @Test(arguments: [true, false])
    func `F19: a peer that is gone for good is noticed, whether it is read or not`(_ isReading: Bool) async throws {
        var ends: [CInt] = [-1, -1]
        try #require(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &ends) == 0)
        let (near, far) = (ends[0], ends[1])
        let loop = try SocketLoop()
        let witness = Witness()
        try await loop.submit {
            let stream = try loop.adopt(near)
            stream.handler = witness
            stream.isReading = isReading
        }.get()
        #expect(send(far, "bye", 3, 0) == 3)
        close(far)
        try await eventually { witness.now.closes == 1 }
        #expect(witness.now.bytes == (isReading ? "bye" : ""))
        #expect(witness.now.hasInputEnded == isReading)
        try await loop.shutdownGracefully()
        #expect(witness.now.closes == 1)
    }

    @Test func `I2: what a peer asked for that is gone finds it closed, and all that it sent is told`() async throws {
        let loop = try SocketLoop()
        var ends: [CInt] = [-1, -1]
        try #require(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &ends) == 0)
        let (near, far) = (ends[0], ends[1])
        let closes = NIOLockedValueBox<[Int]>([])
        let watched = NIOLockedValueBox<Witness?>(nil)
        let witness = Witness { _ in
            // As a command is begun that was read: behind what the loop is at.
            loop.execute {
                closes.withLockedValue { closes in closes.append(watched.withLockedValue { $0?.now.closes ?? -1 }) }
            }
        }
        watched.withLockedValue { $0 = witness }
        let bytes = String(repeating: "x", count: 100_000)
        try #require(send(far, bytes, bytes.utf8.count, 0) == bytes.utf8.count)
        close(far)
        try await loop.submit { try loop.adopt(near).handler = witness }.get()
        try await eventually { witness.now.closes == 1 }
        try await loop.shutdownGracefully()
        watched.withLockedValue { $0 = nil }
        #expect(witness.now.bytes == bytes && witness.now.hasInputEnded)
        #expect(closes.withLockedValue { !$0.isEmpty && $0.allSatisfy { $0 == 1 } })
    }

    @Test func `F19: a peer that leaves what it was sent unread is gone with an error, after what it said`()
        async throws
    {
        let loop = try SocketLoop()
        var ends: [CInt] = [-1, -1]
        try #require(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &ends) == 0)
        let (near, far) = (ends[0], ends[1])
        let witness = Witness()
        try await loop.submit {
            let stream = try loop.adopt(near)
            stream.handler = witness
            stream.write(ByteBuffer(string: "unread"))
            stream.flush()
            _ = send(far, "last words", 10, 0)
            close(far)
        }.get()
        try await eventually { witness.now.closes == 1 }
        #expect(witness.now.bytes == "last words")
        #expect(witness.now.error == ECONNRESET)
        try await loop.shutdownGracefully()
    }

    @Test func `what cannot be watched is closed, and said so`() async throws {
        let loop = try SocketLoop()
        // No file of its kind can be: epoll_ctl(2), EPERM.
        let file = open("/dev/null", O_RDWR | O_CLOEXEC)
        // Its number is above any that the loop has seen.
        let high = fcntl(file, F_DUPFD_CLOEXEC, 500)
        close(file)
        try #require(high >= 500)
        await #expect(throws: IOError.self) { try await loop.submit { _ = try loop.adopt(high) }.get() }
        try await loop.shutdownGracefully()
    }

    @Test func `F19: writing to a peer that is gone closes the stream and raises no signal`() async throws {
        var ends: [CInt] = [-1, -1]
        try #require(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &ends) == 0)
        let (near, far) = (ends[0], ends[1])
        let loop = try SocketLoop()
        let witness = Witness()
        try await loop.submit {
            let stream = try loop.adopt(near)
            stream.handler = witness
            close(far)
            for _ in 0..<2 { stream.write(ByteBuffer(string: "anybody there?")) }
            stream.flush()
            stream.write(ByteBuffer(string: "no"))
            stream.flush()
        }.get()
        #expect(witness.now.closes == 1)
        #expect(witness.now.error == EPIPE)
        try await loop.shutdownGracefully()
    }

    @Test func `closing in the middle of being told is the last that is heard of it`() async throws {
        let closing = NIOLockedValueBox<NIOLoopBound<SocketLoops.Stream>?>(nil)
        let witness = Witness { _ in closing.withLockedValue { $0 }?.value.close() }
        try await Pair.with(witness) { pair in
            closing.withLockedValue { $0 = pair.stream }
            pair.send("x")
            try await eventually { witness.now.closes == 1 }
            #expect(pair.receive(1) == [])
            _ = try await pair.onLoop { stream in
                stream.write(ByteBuffer(string: "too late"))
                stream.flush()
                stream.isReading = false
                stream.close()
            }
            #expect(witness.now.closes == 1 && !witness.now.hasInputEnded)
        }
    }
}
