import Glibc
import NIOCore
import Testing

@testable import SocketLoops

extension Poller {
    fileprivate func poll(for pause: TimeAmount) { tell(wait(for: pause)) }
}

@Suite struct PollerTests {
    private final class Probe: PollHandler {
        var told: [Readiness] = []
        var closes = 0
        var whenTold: () -> Void = {}

        func ready(_ events: Readiness) {
            told.append(events)
            whenTold()
        }

        func close() { closes += 1 }
    }

    private func pair() throws -> (near: CInt, far: CInt) {
        var ends: [CInt] = [-1, -1]
        try #require(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0)
        return (ends[0], ends[1])
    }

    @Test func `what was found ready for a descriptor is not told to the next that has its number`() throws {
        let poller = try Poller()
        let (first, second, third) = (try pair(), try pair(), try pair())
        let (one, other, next) = (Probe(), Probe(), Probe())
        var replaced: CInt = -1
        // Both are ready at once. Whoever is told first ends the other, whose number a third gets. dup2 closes and
        // opens in one step: nobody else in this process can come by the number.
        func replace(_ number: CInt) {
            #expect(replaced == -1, "told after its end")
            replaced = number
            poller.remove(number)
            dup2(third.near, number)
            close(third.near)
            do { try poller.add(number, for: .readable, next) } catch { Issue.record(error) }
        }
        one.whenTold = { replace(second.near) }
        other.whenTold = { replace(first.near) }
        try poller.add(first.near, for: .readable, one)
        try poller.add(second.near, for: .readable, other)
        for far in [first.far, second.far] { #expect(send(far, "x", 1, 0) == 1) }
        poller.poll(for: .zero)
        #expect(replaced != -1)
        #expect(one.told.count + other.told.count == 1 && next.told.isEmpty)
        #expect(send(third.far, "x", 1, 0) == 1)
        one.whenTold = {}
        other.whenTold = {}
        poller.poll(for: .zero)
        #expect(next.told == [.readable])
        for descriptor in [first.near, first.far, second.near, second.far, third.far] { close(descriptor) }
    }

    @Test func `only what a descriptor is watched for is told, and that its peer is gone`() throws {
        let poller = try Poller()
        let ends = try pair()
        let probe = Probe()
        try poller.add(ends.near, for: [], probe)
        #expect(send(ends.far, "x", 1, 0) == 1)
        poller.poll(for: .zero)
        #expect(probe.told == [])
        try poller.change(ends.near, for: .writable)
        poller.poll(for: .zero)
        #expect(probe.told == [.writable])
        try poller.change(ends.near, for: [])
        close(ends.far)
        poller.poll(for: .zero)
        #expect(probe.told.count == 2 && !probe.told[1].isDisjoint(with: .gone))
        poller.remove(ends.near)
        poller.poll(for: .zero)
        #expect(probe.told.count == 2)
        close(ends.near)
    }

    @Test func `more that are ready than are asked for at once all have their turn`() throws {
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
        #expect(probes.allSatisfy { !$0.told.isEmpty })
        poller.close()
        #expect(probes.allSatisfy { $0.closes == 1 })
        for ends in pairs { for descriptor in [ends.near, ends.far] { close(descriptor) } }
    }

    @Test func `what cannot be watched is an error that says which`() throws {
        let error = try #require(throws: IOError.self) { try Poller().add(1 << 20, for: .readable, Probe()) }
        #expect(error.errnoCode == EBADF)
        #expect("\(error)".contains("1048576"))
    }
}
