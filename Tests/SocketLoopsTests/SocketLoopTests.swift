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

    @Test func `tasks run on the loop's thread in order`() async throws {
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

    @Test func `tasks of many threads wake the loop, and none is lost`() async throws {
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

    @Test func `timers run in the order of their deadlines`() async throws {
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

    @Test func `a cancelled timer fails its promise and does not run`() async throws {
        try await withLoop { loop in
            let timer = loop.scheduleTask(in: .hours(1)) { Issue.record("the task ran") }
            timer.cancel()
            await #expect(throws: EventLoopError.cancelled) { try await timer.futureResult.get() }
        }
    }

    @Test func `an error of a task fails its promise`() async throws {
        struct Wrong: Error {}
        try await withLoop { loop in
            await #expect(throws: Wrong.self) {
                try await loop.scheduleTask(in: .zero) { throw Wrong() }.futureResult.get()
            }
        }
    }

    @Test func `a loop wakes another one after its task, and a thread may wake it earlier`() async throws {
        try await withLoop { first in
            try await withLoop { second in
                let done = NIOLockedValueBox<[Int]>([])
                let add = { @Sendable (number: Int) in
                    second.execute { done.withLockedValue { $0.append(number) } }
                }
                first.execute { add(0) }
                try await eventually { done.withLockedValue { $0 } == [0] }

                let (hasAdded, mayEnd) = (NIOLockedValueBox(false), DispatchSemaphore(value: 0))
                defer { mayEnd.signal() }
                first.execute {
                    add(1)
                    hasAdded.withLockedValue { $0 = true }
                    mayEnd.wait()
                }
                try await eventually { hasAdded.withLockedValue { $0 } }
                add(2)
                try await eventually { done.withLockedValue { $0 } == [0, 1, 2] }
            }
        }
    }

    @Test func `an ending loop wakes the loops that its last task gave work`() async throws {
        try await withLoop { other in
            let loop = try SocketLoop()
            let isDone = NIOLockedValueBox(false)
            loop.execute { other.execute { isDone.withLockedValue { $0 = true } } }
            try await loop.shutdownGracefully()
            try await eventually { isDone.withLockedValue { $0 } }
        }
    }

    @Test func `I8: endless tasks do not starve the sockets`() async throws {
        let handler = RecordingHandler()
        try await Pair.with(handler) { pair in
            let isOver = NIOLockedValueBox(false)
            // Each task queues another one, so tasks are always due.
            @Sendable func runAgain() {
                guard !isOver.withLockedValue({ $0 }) else { return }
                pair.loop.execute(runAgain)
            }
            for _ in 0..<100 { pair.loop.execute(runAgain) }
            pair.send("here")
            try await eventually { handler.now.bytes == "here" }
            isOver.withLockedValue { $0 = true }
        }
    }

    @Test func `I8: a long round is interrupted for the sockets and continues after them`() async throws {
        let seen = NIOLockedValueBox<Int?>(nil)
        let done = NIOLockedValueBox<[Int]>([])
        let handler = RecordingHandler { _ in seen.withLockedValue { $0 = done.withLockedValue { $0.count } } }
        try await Pair.with(handler) { pair in
            _ = try await pair.onLoop { _ in
                for number in 0..<10 {
                    pair.loop.execute {
                        // Runs until the round's time is over.
                        let end = NIODeadline.now() + SocketLoop.maximumTaskTime
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

    @Test func `shutdown runs queued tasks, fails timers, and closes streams`() async throws {
        var ends: [CInt] = [-1, -1]
        try #require(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &ends) == 0)
        let near = ends[0]
        let loop = try SocketLoop()
        let handler = RecordingHandler()
        try await loop.submit { try loop.adopt(near).handler = handler }.get()
        let dropped = NIOLockedValueBox<(any Error)?>(nil)
        loop.scheduleTask(in: .hours(1)) { Issue.record("the task ran") }.futureResult
            .whenFailure { error in dropped.withLockedValue { $0 = error } }
        let isDone = NIOLockedValueBox(false)
        loop.execute { loop.execute { isDone.withLockedValue { $0 = true } } }
        try await loop.shutdownGracefully()
        #expect(isDone.withLockedValue { $0 })
        #expect(handler.now.closes == 1)
        #expect(dropped.withLockedValue { $0 } as? EventLoopError == .shutdown)
        var byte: UInt8 = 0
        #expect(recv(ends[1], &byte, 1, 0) == 0)
        close(ends[1])
        // Tasks after the end are dropped.
        loop.execute { Issue.record("the task ran") }
        // A promise that is not completed would trap here.
        loop.scheduleTask(in: .zero) { Issue.record("the task ran") }
        try await loop.shutdownGracefully()
    }

    @Test func `a socket adopted by the loop's last task is closed`() async throws {
        var ends: [CInt] = [-1, -1]
        try #require(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &ends) == 0)
        let near = ends[0]
        let loop = try SocketLoop()
        let handler = RecordingHandler()
        let mayContinue = DispatchSemaphore(value: 0)
        loop.execute {
            mayContinue.wait()
            // The loop ends after this round.
            loop.execute {
                do { try loop.adopt(near).handler = handler } catch { Issue.record(error) }
            }
        }
        let end = Task { try await loop.shutdownGracefully() }
        try await eventually { loop.isEnding }
        mayContinue.signal()
        try await end.value
        #expect(handler.now.closes == 1)
        var byte: UInt8 = 0
        #expect(recv(ends[1], &byte, 1, 0) == 0)
        close(ends[1])
    }

    @Test func `a released loop closes its descriptors`() async throws {
        func descriptors() throws -> Int {
            var count = 0
            let directory = try #require(opendir("/proc/self/fd"))
            while readdir(directory) != nil { count += 1 }
            closedir(directory)
            return count
        }
        // Tests that run at the same time use far fewer descriptors than this.
        let before = try descriptors()
        for _ in 0..<1_000 { try await SocketLoop().shutdownGracefully() }
        try await eventually { try descriptors() < before + 500 }
    }

    @Test func `sockets are assigned to loops in rotation`() async throws {
        let group = try SocketLoopGroup(threads: 3)
        let turns = (0..<6).map { _ in
            // Timers do not affect the rotation.
            _ = group.next()
            return ObjectIdentifier(group.nextForSocket())
        }
        #expect(turns == (group.loops + group.loops).map { ObjectIdentifier($0) })
        try await group.shutdownGracefully()
    }
}
