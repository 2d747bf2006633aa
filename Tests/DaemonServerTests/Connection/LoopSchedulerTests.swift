import NIOCore
import SocketLoops
import Testing

@testable import DaemonServer

/// Division of an event loop's time between accounts (F66).
@Suite struct LoopSchedulerTests {
    /// A loop whose rounds the test starts.
    private final class Bench {
        let round = LoopRound()
        private var scheduled: [() -> Void] = []
        private(set) lazy var scheduler = LoopScheduler(round: round) { [unowned self] in scheduled.append($0) }
        var log: [String] = []

        init() { nextRound() }

        /// - Parameter poll: handles ready sockets, before scheduled work.
        func nextRound(_ poll: () -> Void = {}) {
            round.begin(at: .now())
            poll()
            let due = scheduled
            scheduled = []
            for work in due { work() }
        }

        var isIdle: Bool { scheduled.isEmpty }

        /// Runs `count` commands of a connection, each at the estimated cost.
        func work(_ account: LoopAccount, _ name: String, _ count: Int) {
            account.startRound()
            var left = count
            while left > 0 {
                guard account.mayRun else {
                    return scheduler.enqueue(account) { [self] in work(account, name, left) }
                }
                account.charge(LoopAccount.commandCost)
                left -= 1
            }
            log.append(name)
        }
    }

    /// Commands in a quantum.
    private static let commands = Int(LoopAccount.sharedQuantum / LoopAccount.commandCost)

    @Test func `an account has one quantum in each round, for all of its connections`() {
        let bench = Bench()
        let account = bench.scheduler.enter(1000)
        _ = bench.scheduler.enter(1001)
        #expect(account === bench.scheduler.enter(1000))
        bench.work(account, "a", Self.commands - 1)
        bench.work(account, "b", 1)
        #expect(!account.mayRun)
        bench.work(account, "c", 1)
        #expect(bench.log == ["a", "b"])
        bench.nextRound()
        #expect(bench.log == ["a", "b", "c"])
        #expect(bench.isIdle)
    }

    @Test func `F66: two hundred connections of one account get no more time than one connection of another`() {
        let bench = Bench()
        let many = bench.scheduler.enter(1000)
        let one = bench.scheduler.enter(1001)
        for number in 0..<200 { bench.work(many, "many \(number)", Self.commands) }
        bench.work(one, "one", 10 * Self.commands)
        // Ten turns for each account.
        while !bench.log.contains("one") { bench.nextRound() }
        #expect((8...12).contains(bench.log.count))
        while !bench.isIdle { bench.nextRound() }
        #expect(bench.log.count == 201)
    }

    @Test func `F66: an account with little work does not wait for the remaining work of others`() {
        let bench = Bench()
        let (many, one) = (bench.scheduler.enter(1000), bench.scheduler.enter(1001))
        for number in 0..<10 { bench.work(many, "many \(number)", 3 * Self.commands) }
        bench.work(one, "one", 1)
        #expect(bench.log == ["one"])
    }

    @Test func `connections of one account take turns in order of arrival`() {
        let bench = Bench()
        let account = bench.scheduler.enter(1000)
        bench.work(account, "long", 4 * Int(account.quantum / LoopAccount.commandCost))
        bench.work(account, "short", 1)
        bench.round.begin(at: .now())
        #expect(!account.mayRun)
        bench.work(account, "late", 1)
        while !bench.isIdle { bench.nextRound() }
        #expect(bench.log == ["short", "late", "long"])
    }

    @Test func `F66: postponed sends count as time until they are charged`() {
        let bench = Bench()
        let account = bench.scheduler.enter(1000)
        _ = bench.scheduler.enter(1001)
        account.startRound()
        for _ in 0..<LoopAccount.sharedQuantum / LoopAccount.sendCost - 1 { account.postponeSend(0) }
        #expect(account.hasTime)
        account.postponeSend(0)
        #expect(!account.hasTime)
        account.endPostponedSend()
        #expect(account.hasTime)
        account.charge(LoopAccount.sendCost)
        #expect(!account.hasTime)
        bench.nextRound { account.startRound() }
        #expect(account.hasTime)
    }

    /// The poller reports ready connections in the same order in each round.
    @Test(arguments: [
        ([2], 3), ([12], 16), ([5], 16), ([15], 64), ([64], 65), ([1, 2], 2), ([1, 2, 3], 3), ([5, 12], 12),
    ])
    func `F66: connections that are ready in each round are served equally often`(
        _ row: (perRound: [Int], connections: Int)
    ) {
        let bench = Bench()
        let account = bench.scheduler.enter(1000)
        var lastServed = Array(repeating: UInt64(0), count: row.connections)
        var served = Array(repeating: 0, count: row.connections)
        var isInLine = Array(repeating: false, count: row.connections)
        // The first third was served before.
        for number in 0..<row.connections / 3 { lastServed[number] = account.nextServiceNumber() }
        func serve(_ number: Int) {
            lastServed[number] = account.nextServiceNumber()
            served[number] += 1
            account.charge(account.quantum / Int64(perRound))
        }
        var perRound = 1
        for round in 0..<200 {
            perRound = row.perRound[round % row.perRound.count]
            bench.nextRound {
                account.startRound()
                for number in 0..<row.connections where !isInLine[number] {
                    if account.mayRun {
                        serve(number)
                    } else {
                        isInLine[number] = true
                        bench.scheduler.enqueue(account, lastServed: lastServed[number]) {
                            isInLine[number] = false
                            serve(number)
                        }
                    }
                }
            }
            #expect((served.max() ?? 0) - (served.min() ?? 0) <= 1)
        }
    }

    @Test func `F66: a deficit is deducted from later rounds, up to a limit`() {
        let bench = Bench()
        let account = bench.scheduler.enter(1000)
        _ = bench.scheduler.enter(1001)
        account.startRound()
        account.charge(3 * account.quantum + 1)
        let rounds = { () -> Int in
            var rounds = 0
            while !account.hasTime {
                bench.nextRound()
                account.startRound()
                rounds += 1
            }
            return rounds
        }
        #expect(rounds() == 3)
        account.charge(3_600_000_000_000)
        #expect(rounds() == 100)
        // The account does nothing for three rounds.
        account.charge(3 * account.quantum)
        for _ in 0..<3 { bench.nextRound() }
        account.startRound()
        #expect(account.hasTime)
    }

    @Test func `F66: an account with long commands gets no more time than others`() {
        let bench = Bench()
        // Every command of the first account takes five quanta, those of the others one.
        let costs: [Int64] = [5, 1, 1, 1, 1, 1, 1, 1]
        let accounts = costs.indices.map { bench.scheduler.enter(UInt32($0)) }
        var spent = costs.map { _ in Int64(0) }
        func work(_ index: Int) {
            accounts[index].charge(costs[index] * LoopAccount.sharedQuantum)
            spent[index] += costs[index]
            bench.scheduler.enqueue(accounts[index]) { work(index) }
        }
        for index in costs.indices { bench.scheduler.enqueue(accounts[index]) { work(index) } }
        for _ in 0..<800 { bench.nextRound() }
        // A long command may also cost the account one turn, in which it still repays the round's deficit.
        #expect(spent[0] <= spent[1] && spent[0] >= 3 * spent[1] / 4, "\(spent)")
        #expect((spent.max() ?? 0) - (spent.dropFirst().min() ?? 0) <= 2, "\(spent)")
    }

    @Test func `F66: an account that reconnects still has its deficit`() {
        let bench = Bench()
        _ = bench.scheduler.enter(1001)
        let account = bench.scheduler.enter(1000)
        account.startRound()
        account.charge(3 * account.quantum)
        bench.scheduler.leave(account)
        // The loop serves only the other account during that time.
        for _ in 0..<2 { bench.nextRound() }
        let again = bench.scheduler.enter(1000)
        again.startRound()
        #expect(!again.hasTime && again.quantum == LoopAccount.sharedQuantum)
        bench.scheduler.leave(again)
        for _ in 0..<2 { bench.nextRound() }
        let last = bench.scheduler.enter(1000)
        last.startRound()
        #expect(last.hasTime)
        // Without a deficit, nothing is remembered.
        bench.scheduler.leave(last)
        #expect(bench.scheduler.enter(1000) !== last)
    }

    @Test func `a command costs its estimate until the clock is read, and no less afterwards`() {
        let bench = Bench()
        let account = bench.scheduler.enter(1000)
        _ = bench.scheduler.enter(1001)
        account.startRound()
        for _ in 0..<Self.commands - 1 { account.startCommand() }
        #expect(account.hasTime)
        account.startCommand()
        #expect(!account.hasTime)
        account.charge(1)
        #expect(!account.hasTime)
    }

    @Test func `an account that is alone on the loop has a longer quantum`() {
        let bench = Bench()
        let account = bench.scheduler.enter(1000)
        #expect(account.quantum == LoopAccount.soleQuantum)
        let other = bench.scheduler.enter(1001)
        let third = bench.scheduler.enter(1002)
        #expect([account, other, third].allSatisfy { $0.quantum == LoopAccount.sharedQuantum })
        bench.scheduler.leave(third)
        #expect(account.quantum == LoopAccount.sharedQuantum)
        bench.scheduler.leave(account)
        #expect(other.quantum == LoopAccount.soleQuantum)
    }

    @Test func `an account without connections and deficit is forgotten`() {
        let bench = Bench()
        let account = bench.scheduler.enter(1000)
        _ = bench.scheduler.enter(1000)
        bench.scheduler.leave(account)
        #expect(bench.scheduler.enter(1000) === account)
        bench.scheduler.leave(account)
        bench.scheduler.leave(account)
        #expect(bench.scheduler.enter(1000) !== account)
    }
}
