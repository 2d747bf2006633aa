import NIOCore
import SocketLoops
import Testing

@testable import DaemonServer

/// How the time of an event loop is shared out among accounts (F66).
@Suite struct LoopTurnsTests {
    /// A loop that goes on when the test says so.
    private final class Bench {
        let round = LoopRound()
        private var scheduled: [() -> Void] = []
        private(set) lazy var turns = LoopScheduler(round: round) { [unowned self] in scheduled.append($0) }
        var log: [String] = []

        init() { nextRound() }

        /// - Parameter poll: what is ready, before what is scheduled.
        func nextRound(_ poll: () -> Void = {}) {
            round.begin(at: .now())
            poll()
            let due = scheduled
            scheduled = []
            for work in due { work() }
        }

        var isIdle: Bool { scheduled.isEmpty }

        /// A connection that has so many commands, each of them worth one.
        func work(_ share: LoopShare, _ name: String, _ count: Int) {
            share.begin()
            var left = count
            while left > 0 {
                guard share.mayGoOn else {
                    return share.goOnLater { [self] in work(share, name, left) }
                }
                share.charge(LoopShare.command)
                left -= 1
            }
            log.append(name)
        }
    }

    /// Commands in a round.
    private static let allowance = Int(LoopShare.sharedAllowance / LoopShare.command)

    @Test func `an account has its allowance in each round, over all of its connections`() {
        let bench = Bench()
        let share = bench.turns.enter(1000)
        _ = bench.turns.enter(1001)
        #expect(share === bench.turns.enter(1000))
        bench.work(share, "a", Self.allowance - 1)
        bench.work(share, "b", 1)
        #expect(!share.mayGoOn)
        bench.work(share, "c", 1)
        #expect(bench.log == ["a", "b"])
        bench.nextRound()
        #expect(bench.log == ["a", "b", "c"])
        #expect(bench.isIdle)
    }

    @Test func `F66: two hundred connections of one account get no more of a round than one of another`() {
        let bench = Bench()
        let many = bench.turns.enter(1000)
        let one = bench.turns.enter(1001)
        for number in 0..<200 { bench.work(many, "many \(number)", Self.allowance) }
        bench.work(one, "one", 10 * Self.allowance)
        // Ten turns for the one, ten for the others.
        while !bench.log.contains("one") { bench.nextRound() }
        #expect((8...12).contains(bench.log.count))
        while !bench.isIdle { bench.nextRound() }
        #expect(bench.log.count == 201)
    }

    @Test func `F66: who asks for little is not held up by what others have left to do`() {
        let bench = Bench()
        let (many, one) = (bench.turns.enter(1000), bench.turns.enter(1001))
        for number in 0..<10 { bench.work(many, "many \(number)", 3 * Self.allowance) }
        bench.work(one, "one", 1)
        #expect(bench.log == ["one"])
    }

    @Test func `within an account the connections take turns, and who comes later stands behind`() {
        let bench = Bench()
        let share = bench.turns.enter(1000)
        bench.work(share, "long", 4 * Int(share.allowance / LoopShare.command))
        bench.work(share, "short", 1)
        bench.round.begin(at: .now())
        #expect(!share.mayGoOn)
        bench.work(share, "late", 1)
        while !bench.isIdle { bench.nextRound() }
        #expect(bench.log == ["short", "late", "long"])
    }

    /// The poller names connections that stay ready in the same order in each round.
    @Test(arguments: [
        ([2], 3), ([12], 16), ([5], 16), ([15], 64), ([64], 65), ([1, 2], 2), ([1, 2, 3], 3), ([5, 12], 12),
    ])
    func `F66: connections that are ready in each round are served equally often`(
        _ row: (perRound: [Int], connections: Int)
    ) {
        let bench = Bench()
        let share = bench.turns.enter(1000)
        var lastServed = Array(repeating: UInt64(0), count: row.connections)
        var served = Array(repeating: 0, count: row.connections)
        var isInLine = Array(repeating: false, count: row.connections)
        // Before, the first of them were served.
        for number in 0..<row.connections / 3 { lastServed[number] = share.serve() }
        func serve(_ number: Int) {
            lastServed[number] = share.serve()
            served[number] += 1
            share.charge(share.allowance / Int64(perRound))
        }
        var perRound = 1
        for round in 0..<200 {
            perRound = row.perRound[round % row.perRound.count]
            bench.nextRound {
                share.begin()
                for number in 0..<row.connections where !isInLine[number] {
                    if share.mayGoOn {
                        serve(number)
                    } else {
                        isInLine[number] = true
                        share.goOnLater(lastServed: lastServed[number]) {
                            isInLine[number] = false
                            serve(number)
                        }
                    }
                }
            }
            #expect((served.max() ?? 0) - (served.min() ?? 0) <= 1)
        }
    }

    @Test func `F66: what took longer than a round is paid for in those behind it, and a standstill is forgiven`() {
        let bench = Bench()
        let share = bench.turns.enter(1000)
        _ = bench.turns.enter(1001)
        share.begin()
        share.charge(3 * share.allowance + 1)
        let rounds = { () -> Int in
            var rounds = 0
            while !share.hasTime {
                bench.nextRound()
                share.begin()
                rounds += 1
            }
            return rounds
        }
        #expect(rounds() == 3)
        share.charge(3_600_000_000_000)
        #expect(rounds() == 100)
        // Nobody was there meanwhile.
        share.charge(3 * share.allowance)
        for _ in 0..<3 { bench.nextRound() }
        share.begin()
        #expect(share.hasTime)
    }

    @Test func `F66: whoever leaves with a debt comes back with what is left of it`() {
        let bench = Bench()
        _ = bench.turns.enter(1001)
        let share = bench.turns.enter(1000)
        share.begin()
        share.charge(3 * share.allowance)
        bench.turns.leave(share)
        // The loop is another's alone meanwhile.
        for _ in 0..<2 { bench.nextRound() }
        let again = bench.turns.enter(1000)
        again.begin()
        #expect(!again.hasTime && again.allowance == LoopShare.sharedAllowance)
        bench.turns.leave(again)
        for _ in 0..<2 { bench.nextRound() }
        let last = bench.turns.enter(1000)
        last.begin()
        #expect(last.hasTime)
        // What is paid needs to be remembered no more.
        bench.turns.leave(last)
        #expect(bench.turns.enter(1000) !== last)
    }

    @Test func `what has begun counts before the clock is looked at, and no less behind it`() {
        let bench = Bench()
        let share = bench.turns.enter(1000)
        _ = bench.turns.enter(1001)
        share.begin()
        for _ in 0..<Self.allowance - 1 { share.beginCommand() }
        #expect(share.hasTime)
        share.beginCommand()
        #expect(!share.hasTime)
        share.charge(1)
        #expect(!share.hasTime)
    }

    @Test func `an account that has the loop for itself has longer rounds, until another comes`() {
        let bench = Bench()
        let share = bench.turns.enter(1000)
        #expect(share.allowance == LoopShare.wholeAllowance)
        let other = bench.turns.enter(1001)
        let third = bench.turns.enter(1002)
        #expect([share, other, third].allSatisfy { $0.allowance == LoopShare.sharedAllowance })
        bench.turns.leave(third)
        #expect(share.allowance == LoopShare.sharedAllowance)
        bench.turns.leave(share)
        #expect(other.allowance == LoopShare.wholeAllowance)
    }

    @Test func `a share goes with the last connection of its account`() {
        let bench = Bench()
        let share = bench.turns.enter(1000)
        _ = bench.turns.enter(1000)
        bench.turns.leave(share)
        #expect(bench.turns.enter(1000) === share)
        bench.turns.leave(share)
        bench.turns.leave(share)
        #expect(bench.turns.enter(1000) !== share)
    }
}
