import Dispatch
import Glibc
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import SocketLoops

@Suite(.timeLimit(.minutes(5))) struct SocketLoopTests {
    private func withLoop(_ body: (SocketLoop) async throws -> Void) async throws {
        let loop = try SocketLoop()
        do {
            try await body(loop)
        } catch {
            try await loop.shutdownGracefully()
            throw error
        }
        try await loop.shutdownGracefully()
    }

    @Test func `work is done on the loop's thread, in its order, from wherever it comes`() async throws {
        try await withLoop { loop in
            #expect(!loop.inEventLoop)
            let done = NIOLockedValueBox<[Int]>([])
            for number in 0..<1_000 {
                loop.execute {
                    #expect(loop.inEventLoop)
                    done.withLockedValue { $0.append(number) }
                }
            }
            try await loop.submit {}.get()
            #expect(done.withLockedValue { $0 } == Array(0..<1_000))
        }
    }

    @Test func `a loop that sleeps is woken by work from many threads, none of it lost`() async throws {
        try await withLoop { loop in
            let count = NIOLockedValueBox(0)
            await withTaskGroup(of: Void.self) { group in
                for _ in 0..<8 {
                    group.addTask {
                        for _ in 0..<500 {
                            loop.execute { count.withLockedValue { $0 += 1 } }
                            await Task.yield()
                        }
                    }
                }
            }
            try await eventually { count.withLockedValue { $0 } == 4_000 }
        }
    }

    @Test func `timers go off in the order of their times, by swift-nio's own promises`() async throws {
        try await withLoop { loop in
            let done = NIOLockedValueBox<[Int]>([])
            let now = NIODeadline.now()
            let timers = [30, 10, 20].map { time in
                loop.scheduleTask(deadline: now + .milliseconds(Int64(time))) {
                    done.withLockedValue { $0.append(time) }
                    return time
                }
            }
            for timer in timers { _ = try await timer.futureResult.get() }
            #expect(done.withLockedValue { $0 } == [10, 20, 30])
        }
    }

    @Test func `a timer that is cancelled says so, and does not run`() async throws {
        try await withLoop { loop in
            let timer = loop.scheduleTask(in: .hours(1)) { Issue.record("it ran") }
            timer.cancel()
            await #expect(throws: EventLoopError.cancelled) { try await timer.futureResult.get() }
        }
    }

    @Test func `an error of work is the error of its promise`() async throws {
        struct Wrong: Error {}
        try await withLoop { loop in
            await #expect(throws: Wrong.self) {
                try await loop.scheduleTask(in: .zero) { throw Wrong() }.futureResult.get()
            }
        }
    }

    @Test func `I8: work that begets work without end lets the sockets have their turn`() async throws {
        let witness = Witness()
        try await Pair.with(witness) { pair in
            let isOver = NIOLockedValueBox(false)
            // Each does its part and puts another in its place: there is always something to do.
            @Sendable func goOn() {
                guard !isOver.withLockedValue({ $0 }) else { return }
                pair.loop.execute(goOn)
            }
            for _ in 0..<100 { pair.loop.execute(goOn) }
            pair.send("here")
            try await eventually { witness.now.bytes == "here" }
            isOver.withLockedValue { $0 = true }
        }
    }

    @Test func `I8: a round that takes long is broken off for the sockets, and goes on where it ended`() async throws {
        let seen = NIOLockedValueBox<Int?>(nil)
        let done = NIOLockedValueBox<[Int]>([])
        let witness = Witness { _ in seen.withLockedValue { $0 = done.withLockedValue { $0.count } } }
        try await Pair.with(witness) { pair in
            _ = try await pair.onLoop { _ in
                for number in 0..<10 {
                    pair.loop.execute {
                        // Until a round's time is over.
                        let end = NIODeadline.now() + SocketLoop.longestRound
                        while .now() < end {}
                        done.withLockedValue { $0.append(number) }
                        if number == 0 { pair.send("x") }
                    }
                }
            }
            try await eventually { done.withLockedValue { $0 } == Array(0..<10) }
            #expect(try #require(seen.withLockedValue { $0 }) < 3)
        }
    }

    @Test func `a loop that ends does what it has begun, drops its timers, and closes its streams`() async throws {
        var ends: [CInt] = [-1, -1]
        try #require(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &ends) == 0)
        let near = ends[0]
        let loop = try SocketLoop()
        let witness = Witness()
        try await loop.submit { try loop.adopt(near).handler = witness }.get()
        let dropped = NIOLockedValueBox<(any Error)?>(nil)
        loop.scheduleTask(in: .hours(1)) { Issue.record("it ran") }.futureResult
            .whenFailure { error in dropped.withLockedValue { $0 = error } }
        let isDone = NIOLockedValueBox(false)
        loop.execute { loop.execute { isDone.withLockedValue { $0 = true } } }
        try await loop.shutdownGracefully()
        #expect(isDone.withLockedValue { $0 })
        #expect(witness.now.closes == 1)
        #expect(dropped.withLockedValue { $0 } as? EventLoopError == .shutdown)
        var byte: UInt8 = 0
        #expect(recv(ends[1], &byte, 1, 0) == 0)
        close(ends[1])
        // Whatever comes now has come too late.
        loop.execute { Issue.record("it ran") }
        // A promise that is neither kept nor broken ends the process here.
        loop.scheduleTask(in: .zero) { Issue.record("it ran") }
        try await loop.shutdownGracefully()
    }

    @Test func `a socket that is taken on by the last work of a loop is closed with it`() async throws {
        var ends: [CInt] = [-1, -1]
        try #require(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &ends) == 0)
        let near = ends[0]
        let loop = try SocketLoop()
        let witness = Witness()
        let mayGoOn = DispatchSemaphore(value: 0)
        loop.execute {
            mayGoOn.wait()
            // The end has been asked for: it is there when this round is over.
            loop.execute {
                do { try loop.adopt(near).handler = witness } catch { Issue.record(error) }
            }
        }
        let end = Task { try await loop.shutdownGracefully() }
        try await eventually { loop.isEnding }
        mayGoOn.signal()
        try await end.value
        #expect(witness.now.closes == 1)
        var byte: UInt8 = 0
        #expect(recv(ends[1], &byte, 1, 0) == 0)
        close(ends[1])
    }

    @Test func `a loop that nobody needs any more gives its descriptors back`() async throws {
        func descriptors() throws -> Int {
            var count = 0
            let directory = try #require(opendir("/proc/self/fd"))
            while readdir(directory) != nil { count += 1 }
            closedir(directory)
            return count
        }
        // Other tests open and close some at the same time: far fewer than this.
        let before = try descriptors()
        for _ in 0..<1_000 { try await SocketLoop().shutdownGracefully() }
        try await eventually { try descriptors() < before + 500 }
    }

    @Test func `sockets are spread over the loops in turn`() async throws {
        let group = try SocketLoopGroup(threads: 3)
        let turns = (0..<6).map { _ in
            // Timers in between change nothing.
            _ = group.next()
            return ObjectIdentifier(group.nextForSocket())
        }
        #expect(turns == (group.loops + group.loops).map { ObjectIdentifier($0) })
        try await group.shutdownGracefully()
    }
}
