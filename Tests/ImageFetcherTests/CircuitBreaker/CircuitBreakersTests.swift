import HelperProtocol
import NIOCore
import Testing

@testable import CacheCore
@testable import ImageFetcher

/// Who may ask which host, as a value: no sockets, no clock, no dice.
@Suite struct CircuitBreakersTests {
    private static let rules = CircuitBreaker.Rules(
        BreakerPolicy(failures: 3, backoff: 1_000, backoffMax: 8_000, retryAfterMax: 20_000))
    private static let host = HostKey(origin: "a", authority: "http://host.example")
    private static let failed = CircuitBreakers.Finding.failed(retryAfter: nil)

    private static func at(_ milliseconds: Int64) -> NIODeadline { .uptimeNanoseconds(0) + .milliseconds(milliseconds) }

    private static func host(_ number: Int) -> HostKey { HostKey(origin: "a", authority: "http://\(number).example") }

    /// Of the origin `a`, which is the only one.
    private struct Figures: Equatable {
        var hosts = 0
        var uids = 0
        var retryIn: Int64?
        var longest: Int64?
    }

    private func figures(of breakers: CircuitBreakers, at milliseconds: Int64) -> Figures {
        var all = FetcherStatistics()
        breakers.addFigures(to: &all, at: Self.at(milliseconds))
        #expect(all.origins.keys.allSatisfy { $0 == "a" })
        let origin = all.origins["a"]
        return Figures(
            hosts: all.hostsOpen, uids: all.uidsOpen, retryIn: origin?.retryIn, longest: origin?.longestRetryIn)
    }

    /// What happens, to whose request.
    enum Step: Sendable {
        /// It asks and is answered at once.
        case request(UInt32, CircuitBreakers.Finding)
        /// It had been sent before, and ends now.
        case late(UInt32, CircuitBreakers.Finding)
        /// It asks and must not be sent.
        case rejected(UInt32, CircuitBreaker.Rejection)
    }

    struct Row: Sendable, CustomTestStringConvertible {
        let name: String
        let steps: [(at: Int64, Step)]
        /// The uids that may ask at the end, of 1 to 4.
        let mayAsk: [UInt32]
        var testDescription: String { name }
    }

    /// Every draw is the highest.
    static let rows: [Row] = [
        Row(
            name: "one uid's failures, however many, shut its own way alone",
            steps: (0..<1_000).map { _ in (0, .late(1, failed)) }, mayAsk: [2, 3, 4]),
        Row(
            name: "so does a Retry-After to one uid",
            steps: [
                (0, .request(1, .failed(retryAfter: 15_000))), (0, .rejected(1, .open(milliseconds: 15_000))),
                (14_999, .rejected(1, .open(milliseconds: 1))),
            ], mayAsk: [2, 3, 4]),
        Row(
            name: "and refused credentials do, counted like failures",
            steps: [
                (0, .request(1, .refused)), (0, .request(1, .refused)), (0, .request(2, .refused)),
                (0, .request(1, .refused)),
            ], mayAsk: [2, 3, 4]),
        Row(
            name: "a success of another uid does not open it again",
            steps: [
                (0, .request(1, failed)), (0, .request(1, failed)), (0, .request(2, .works)), (0, .request(1, failed)),
            ], mayAsk: [2, 3, 4]),
        Row(
            name: "but one of its own makes its failures start anew",
            steps: [
                (0, .request(1, failed)), (0, .request(1, failed)), (0, .request(1, .works)), (0, .request(1, failed)),
            ], mayAsk: [1, 2, 3, 4]),
        Row(
            name: "what cannot be reached is so for all, whoever found out",
            steps: [
                (0, .request(1, .unreachable)), (0, .request(1, .unreachable)), (0, .request(1, .unreachable)),
                (0, .rejected(2, .open(milliseconds: 1_000))),
            ], mayAsk: []),
        Row(
            name: "the same when several found out",
            steps: [
                (0, .request(1, .unreachable)), (0, .request(2, .unreachable)), (0, .request(3, .unreachable)),
                (0, .rejected(4, .open(milliseconds: 1_000))),
            ], mayAsk: []),
        Row(
            name: "an answer of whatever kind says that it can be reached",
            steps: [
                (0, .request(1, .unreachable)), (0, .request(1, .unreachable)), (0, .request(2, failed)),
                (0, .request(1, .unreachable)),
            ], mayAsk: [1, 2, 3, 4]),
        Row(
            name:
                "one uid finds out for all whether it can be reached again, and a failure of another kind "
                + "says that it can",
            steps: [
                (0, .late(1, .unreachable)), (0, .late(1, .unreachable)), (0, .late(1, .unreachable)),
                (1_000, .request(4, failed)),
            ], mayAsk: [1, 2, 3, 4]),
        Row(
            name: "a uid that gives up the request that finds out does not get the next, and another does",
            steps: [
                (0, .late(1, .unreachable)), (0, .late(1, .unreachable)), (0, .late(1, .unreachable)),
                (1_000, .request(1, .nothing)), (1_000, .rejected(1, .open(milliseconds: 1_000))),
                (1_999, .rejected(1, .open(milliseconds: 1))), (1_999, .request(2, .works)),
            ], mayAsk: [1, 2, 3, 4]),
        Row(
            name: "but it does when it has waited as long as a failure would have made all wait",
            steps: [
                (0, .late(1, .unreachable)), (0, .late(1, .unreachable)), (0, .late(1, .unreachable)),
                (1_000, .request(1, .nothing)), (1_000, .request(2, .nothing)), (2_000, .request(1, .nothing)),
            ], mayAsk: [2, 3, 4]),
        Row(
            name: "and a failure is everybody's again",
            steps: [
                (0, .late(1, .unreachable)), (0, .late(1, .unreachable)), (0, .late(1, .unreachable)),
                (1_000, .request(1, .nothing)), (1_000, .request(2, .unreachable)),
                (1_000, .rejected(1, .open(milliseconds: 2_000))), (1_000, .rejected(3, .open(milliseconds: 2_000))),
                (3_000, .request(1, .works)),
            ], mayAsk: [1, 2, 3, 4]),
        Row(
            name: "what several uids met makes each careful: its first failure shuts its way",
            steps: [
                (0, .request(1, failed)), (0, .request(1, failed)), (0, .request(2, failed)),
                (0, .rejected(2, .open(milliseconds: 1_000))), (0, .request(3, failed)),
                (0, .rejected(3, .open(milliseconds: 1_000))), (0, .request(1, failed)),
            ], mayAsk: [4]),
        Row(
            name: "many uids of one account can shut nobody else's way",
            steps: (10..<1_000).map { (0, .late($0 as UInt32, .failed(retryAfter: 20_000))) },
            mayAsk: [1, 2, 3, 4]),
        Row(
            name: "a success ends the care",
            steps: [
                (0, .request(1, failed)), (0, .request(2, failed)), (0, .request(3, failed)), (0, .request(4, .works)),
                (0, .request(4, failed)), (0, .request(1, failed)),
            ], mayAsk: [1, 2, 4]),
        Row(
            name: "a refusal ends it, too",
            steps: [
                (0, .request(1, failed)), (0, .request(2, failed)), (0, .late(3, .refused)), (0, .request(2, failed)),
            ], mayAsk: [1, 2, 3, 4]),
        Row(
            name: "what shows nothing changes nothing",
            steps: [(0, .request(1, failed)), (0, .request(1, failed)), (0, .request(1, .nothing))],
            mayAsk: [1, 2, 3, 4]),
        Row(
            name: "a uid's own probe that meets no host says nothing of the uid, and the next finds out",
            steps: [
                (0, .request(1, .failed(retryAfter: 5_000))), (5_000, .request(1, .unreachable)),
                (5_000, .request(1, .works)), (5_000, .request(1, failed)),
            ], mayAsk: [1, 2, 3, 4]),
        Row(
            name: "a uid's way shut for longer than the host outlives it",
            steps: [
                (0, .late(1, .failed(retryAfter: 20_000))), (0, .late(2, .unreachable)), (0, .late(2, .unreachable)),
                (0, .late(2, .unreachable)), (1_000, .request(2, .works)),
                (1_000, .rejected(1, .open(milliseconds: 19_000))),
            ], mayAsk: [2, 3, 4]),
    ]

    @Test(arguments: rows)
    func `F68: what one uid meets shuts its own way to a host, and what cannot be reached is shut for all`(
        _ row: Row
    ) throws {
        var breakers = CircuitBreakers()
        var now = Self.at(0)
        func learn(_ finding: CircuitBreakers.Finding, _ uid: UInt32, _ permit: CircuitBreakers.Permit) {
            breakers.learn(finding, of: Self.host, for: uid, from: permit, at: now, rules: Self.rules) { $0.upperBound }
        }
        for (time, step) in row.steps {
            now = Self.at(time)
            switch step {
            case .request(let uid, let finding): learn(finding, uid, try breakers.ask(Self.host, for: uid, at: now))
            case .late(let uid, let finding): learn(finding, uid, .init())
            case .rejected(let uid, let rejection):
                #expect(throws: rejection) { try breakers.ask(Self.host, for: uid, at: now) }
            }
        }
        #expect((1...4).filter { breakers.rejection(of: Self.host, for: $0, at: now) == nil } == row.mayAsk)
    }

    @Test func `F68: who is told that a breaker has opened or closed, of both where both have`() throws {
        var breakers = CircuitBreakers()
        func learn(
            _ finding: CircuitBreakers.Finding, _ uid: UInt32, _ permit: CircuitBreakers.Permit = .init(),
            at time: Int64 = 0
        ) -> [CircuitBreakers.Change] {
            breakers.learn(finding, of: Self.host, for: uid, from: permit, at: Self.at(time), rules: Self.rules) {
                $0.upperBound
            }
        }
        #expect(learn(.failed(retryAfter: 1), 1) == [.opened(for: 1)])
        #expect(learn(.failed(retryAfter: 1), 1) == [])
        #expect(learn(.unreachable, 1) == [] && learn(.unreachable, 2) == [])
        #expect(learn(.unreachable, 3) == [.opened(for: nil)])
        #expect(learn(.unreachable, 4) == [])
        var permit = try breakers.ask(Self.host, for: 2, at: Self.at(1_000))
        #expect(learn(.nothing, 2, permit, at: 1_000) == [])
        permit = try breakers.ask(Self.host, for: 3, at: Self.at(1_000))
        let both = learn(.failed(retryAfter: 9_000), 3, permit, at: 1_000)
        #expect(both == [.closed(for: nil), .opened(for: 3)])
        permit = try breakers.ask(Self.host, for: 3, at: Self.at(10_000))
        #expect(learn(.works, 3, permit, at: 10_000) == [.closed(for: 3)])
    }

    @Test(arguments: [.nothing, .failed(retryAfter: 9_000), .unreachable, .works] as [CircuitBreakers.Finding])
    func `F68: a connection closes the breaker for all, and what then comes of its request concerns its uid alone`(
        _ finding: CircuitBreakers.Finding
    ) throws {
        var breakers = CircuitBreakers()
        for _ in 0..<3 {
            breakers.learn(.unreachable, of: Self.host, for: 1, from: .init(), at: Self.at(0), rules: Self.rules) {
                $0.upperBound
            }
        }
        var permit = try breakers.ask(Self.host, for: 1, at: Self.at(1_000))
        #expect(breakers.rejection(of: Self.host, for: 2, at: Self.at(1_000)) == .probed)
        #expect(breakers.connected(Self.host, for: 1, with: &permit) == [.closed(for: nil)])
        #expect(breakers.connected(Self.host, for: 1, with: &permit) == [])
        #expect(breakers.rejection(of: Self.host, for: 2, at: Self.at(1_000)) == nil)
        let changes = breakers.learn(
            finding, of: Self.host, for: 1, from: permit, at: Self.at(1_000), rules: Self.rules
        ) { $0.upperBound }
        #expect(changes == (finding == .failed(retryAfter: 9_000) ? [.opened(for: 1)] : []))
        #expect(breakers.rejection(of: Self.host, for: 2, at: Self.at(1_000)) == nil)
    }

    @Test func `F68: while one uid's request finds out, nobody else's breaker waits for it`() throws {
        var breakers = CircuitBreakers()
        for uid in [1, 2] as [UInt32] {
            breakers.learn(
                .failed(retryAfter: 5_000), of: Self.host, for: uid, from: .init(), at: Self.at(0), rules: Self.rules
            ) { $0.upperBound }
        }
        _ = try breakers.ask(Self.host, for: 1, at: Self.at(5_000))
        #expect(breakers.rejection(of: Self.host, for: 1, at: Self.at(5_000)) == .probed)
        #expect(breakers.rejection(of: Self.host, for: 2, at: Self.at(5_000)) == nil)
        #expect(breakers.rejection(of: Self.host, for: 3, at: Self.at(5_000)) == nil)
    }

    @Test func `F37: one host's failures say nothing of another, nor of the same host as another origin reaches it`()
        throws
    {
        var breakers = CircuitBreakers()
        for _ in 0..<3 {
            breakers.learn(
                .unreachable, of: Self.host, for: 1, from: .init(), at: Self.at(0), rules: Self.rules
            ) { $0.upperBound }
        }
        #expect(breakers.rejection(of: Self.host, for: 1, at: Self.at(0)) == .open(milliseconds: 1_000))
        for other in [
            ("a", "http://host.example:81"), ("a", "https://host.example"), ("b", "http://host.example"),
        ] {
            let key = HostKey(origin: other.0, authority: other.1)
            #expect(breakers.rejection(of: key, for: 1, at: Self.at(0)) == nil)
        }
        #expect(figures(of: breakers, at: 400) == Figures(hosts: 1, uids: 0, retryIn: 600, longest: 600))
        let permit = try breakers.ask(Self.host, for: 2, at: Self.at(1_000))
        breakers.learn(.works, of: Self.host, for: 2, from: permit, at: Self.at(1_000), rules: Self.rules) {
            $0.upperBound
        }
        #expect(breakers.count == (0, 0) && figures(of: breakers, at: 1_000) == Figures())
    }

    @Test func `I1: the figures tell what concerns everybody from what one uid met`() {
        var breakers = CircuitBreakers()
        breakers.learn(
            .failed(retryAfter: 9_000), of: Self.host, for: 1, from: .init(), at: Self.at(0), rules: Self.rules
        ) { $0.upperBound }
        #expect(figures(of: breakers, at: 0) == Figures(hosts: 0, uids: 1, retryIn: 0, longest: 9_000))
    }

    @Test func `I8: one uid's many hosts take room from that uid alone`() {
        var breakers = CircuitBreakers()
        func fail(_ finding: CircuitBreakers.Finding, _ host: HostKey, _ uid: UInt32) {
            breakers.learn(finding, of: host, for: uid, from: .init(), at: Self.at(0), rules: Self.rules) {
                $0.lowerBound
            }
        }
        fail(.failed(retryAfter: 1_000), Self.host, 2)
        for _ in 0..<3 { fail(.unreachable, Self.host, 2) }
        for number in 0..<(CircuitBreakers.mostHosts + 500) {
            fail(.failed(retryAfter: Int64(2_000 + number)), Self.host(number), 1)
            fail(.unreachable, Self.host(number), 1)
            #expect(breakers.count.hosts <= CircuitBreakers.mostHosts)
            #expect(breakers.count.own <= CircuitBreakers.mostOfUID + 1)
        }
        #expect(breakers.count == (CircuitBreakers.mostHosts, CircuitBreakers.mostOfUID + 1))
        // What was forgotten is the uid's own, and of that what mattered the shortest.
        #expect(breakers.rejection(of: Self.host, for: 3, at: Self.at(0)) != nil)
        #expect(breakers.rejection(of: Self.host, for: 2, at: Self.at(999)) != nil)
        #expect(breakers.rejection(of: Self.host(0), for: 1, at: Self.at(0)) == nil)
        #expect(breakers.rejection(of: Self.host(CircuitBreakers.mostHosts + 499), for: 1, at: Self.at(0)) != nil)
    }

    @Test func `I8: many uids take no more room than there is, and who has most makes room for the first of each`() {
        var breakers = CircuitBreakers()
        let full = CircuitBreakers.mostOfUIDs / CircuitBreakers.mostOfUID
        for uid in 0..<UInt32(full + 100) {
            for number in 0..<CircuitBreakers.mostOfUID {
                breakers.learn(
                    .failed(retryAfter: 9_000), of: Self.host(number), for: uid, from: .init(), at: Self.at(0),
                    rules: Self.rules
                ) { $0.lowerBound }
            }
        }
        #expect(breakers.count.own == CircuitBreakers.mostOfUIDs)
        for uid in 0..<UInt32(full + 100) {
            let remembered = (0..<CircuitBreakers.mostOfUID).count {
                breakers.rejection(of: Self.host($0), for: uid, at: Self.at(0)) != nil
            }
            #expect(remembered > 0)
        }
    }
}
