import Glibc
import NIOCore
import Testing

@testable import SocketLoops

extension Poller {
    fileprivate func poll(for pause: TimeAmount) { dispatch(wait(for: pause)) }
}

@Suite struct PollerTests {
    private final class Probe: PollHandler {
        var reported: [Readiness] = []
        var closes = 0
        var onReady: () -> Void = {}

        func ready(_ events: Readiness) {
            reported.append(events)
            onReady()
        }

        func close() { closes += 1 }
    }

    private func pair() throws -> (near: CInt, far: CInt) {
        var ends: [CInt] = [-1, -1]
        try #require(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0)
        return (ends[0], ends[1])
    }

    @Test func `events of a closed descriptor do not reach the next user of its number`() throws {
        let poller = try Poller()
        let (first, second, third) = (try pair(), try pair(), try pair())
        let (one, other, next) = (Probe(), Probe(), Probe())
        var replaced: CInt = -1
        // Both are ready at once. The first handler closes the other descriptor, and a third gets its number. dup2 does
        // both atomically, so no other thread can get the number.
        func replace(_ number: CInt) {
            #expect(replaced == -1, "an event is reported after close")
            replaced = number
            poller.remove(number)
            dup2(third.near, number)
            close(third.near)
            do { try poller.add(number, for: .readable, next) } catch { Issue.record(error) }
        }
        one.onReady = { replace(second.near) }
        other.onReady = { replace(first.near) }
        try poller.add(first.near, for: .readable, one)
        try poller.add(second.near, for: .readable, other)
        for far in [first.far, second.far] { #expect(send(far, "x", 1, 0) == 1) }
        poller.poll(for: .zero)
        #expect(replaced != -1)
        #expect(one.reported.count + other.reported.count == 1 && next.reported.isEmpty)
        #expect(send(third.far, "x", 1, 0) == 1)
        one.onReady = {}
        other.onReady = {}
        poller.poll(for: .zero)
        #expect(next.reported == [.readable])
        for descriptor in [first.near, first.far, second.near, second.far, third.far] { close(descriptor) }
    }

    @Test func `only watched events and the peer's close are reported`() throws {
        let poller = try Poller()
        let ends = try pair()
        let probe = Probe()
        try poller.add(ends.near, for: [], probe)
        #expect(send(ends.far, "x", 1, 0) == 1)
        poller.poll(for: .zero)
        #expect(probe.reported == [])
        try poller.change(ends.near, for: .writable)
        poller.poll(for: .zero)
        #expect(probe.reported == [.writable])
        try poller.change(ends.near, for: [])
        close(ends.far)
        poller.poll(for: .zero)
        #expect(probe.reported.count == 2 && !probe.reported[1].isDisjoint(with: .gone))
        poller.remove(ends.near)
        poller.poll(for: .zero)
        #expect(probe.reported.count == 2)
        close(ends.near)
    }

    @Test func `more ready descriptors than one wait returns are all reported`() throws {
        let poller = try Poller()
        var probes: [Probe] = []
        var pairs: [(near: CInt, far: CInt)] = []
        for _ in 0..<200 {
            let (ends, probe) = (try pair(), Probe())
            #expect(send(ends.far, "x", 1, 0) == 1)
            try poller.add(ends.near, for: .readable, probe)
            pairs.append(ends)
            probes.append(probe)
        }
        for _ in 0..<4 { poller.poll(for: .zero) }
        #expect(probes.allSatisfy { !$0.reported.isEmpty })
        poller.close()
        #expect(probes.allSatisfy { $0.closes == 1 })
        for ends in pairs { for descriptor in [ends.near, ends.far] { close(descriptor) } }
    }

    @Test func `the error for an unwatchable descriptor names it`() throws {
        let error = try #require(throws: IOError.self) { try Poller().add(1 << 20, for: .readable, Probe()) }
        #expect(error.errnoCode == EBADF)
        #expect("\(error)".contains("1048576"))
    }
}
