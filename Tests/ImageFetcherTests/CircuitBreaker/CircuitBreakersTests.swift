import HelperProtocol
import NIOCore
import Testing

@testable import CacheCore
@testable import ImageFetcher

/// The breakers of hosts and accounts as a value, without sockets, clock or randomness.
@Suite struct CircuitBreakersTests {
    fileprivate static let rules = CircuitBreaker.Rules(
        BreakerPolicy(failures: 3, backoff: 1_000, backoffMax: 8_000, retryAfterMax: 20_000))
    fileprivate static let host = HostKey(origin: "a", authority: "http://host.example")
    private static let failed = CircuitBreakers.Finding.failed(retryAfter: nil)

    fileprivate static func at(_ milliseconds: Int64) -> NIODeadline {
        .uptimeNanoseconds(0) + .milliseconds(milliseconds)
    }

    private static func host(_ number: Int) -> HostKey { HostKey(origin: "a", authority: "http://\(number).example") }

    /// Statistics of the origin `a`, which is the only one.
    private struct Figures: Equatable {
        var hosts = 0
        var accounts = 0
        var retryIn: Int64?
        var longest: Int64?
    }

    private func figures(of breakers: CircuitBreakers, at milliseconds: Int64) -> Figures {
        var all = FetcherStatistics()
        breakers.addFigures(to: &all, at: Self.at(milliseconds))
        #expect(all.origins.keys.allSatisfy { $0 == "a" })
        let origin = all.origins["a"]
        return Figures(
            hosts: all.hostsOpen, accounts: all.accountsOpen, retryIn: origin?.retryIn, longest: origin?.longestRetryIn)
    }

    /// An event of an account's request.
    enum Step: Sendable {
        /// A request that gets a permit and ends at once.
        case request(UInt32, CircuitBreakers.Finding)
        /// The end of a request that was sent much earlier.
        case late(UInt32, CircuitBreakers.Finding)
        /// A request that is rejected.
        case rejected(UInt32, CircuitBreaker.Rejection)
    }

    struct Row: Sendable, CustomTestStringConvertible {
        let name: String
        let steps: [(at: Int64, Step)]
        /// The accounts from 1 to 4 whose requests are admitted at the end.
        let admitted: [UInt32]
        var testDescription: String { name }
    }

    /// Every wait is the longest possible.
    static let rows: [Row] = [
        Row(
            name: "any number of failures of one account opens the breaker of that account only",
            steps: (0..<1_000).map { _ in (0, .late(1, failed)) }, admitted: [2, 3, 4]),
        Row(
            name: "a Retry-After opens the breaker of that account only",
            steps: [
                (0, .request(1, .failed(retryAfter: 15_000))), (0, .rejected(1, .open(milliseconds: 15_000))),
                (14_999, .rejected(1, .open(milliseconds: 1))),
            ], admitted: [2, 3, 4]),
        Row(
            name: "rejected credentials count like failures of that account",
            steps: [
                (0, .request(1, .refused)), (0, .request(1, .refused)), (0, .request(2, .refused)),
                (0, .request(1, .refused)),
            ], admitted: [2, 3, 4]),
        Row(
            name: "a success of another account does not reset the count",
            steps: [
                (0, .request(1, failed)), (0, .request(1, failed)), (0, .request(2, .works)), (0, .request(1, failed)),
            ], admitted: [2, 3, 4]),
        Row(
            name: "a success of the account resets its count",
            steps: [
                (0, .request(1, failed)), (0, .request(1, failed)), (0, .request(1, .works)), (0, .request(1, failed)),
            ], admitted: [1, 2, 3, 4]),
        Row(
            name: "connection failures of one account open the shared breaker",
            steps: [
                (0, .request(1, .unreachable)), (0, .request(1, .unreachable)), (0, .request(1, .unreachable)),
                (0, .rejected(2, .open(milliseconds: 1_000))),
            ], admitted: []),
        Row(
            name: "connection failures of several accounts open the shared breaker",
            steps: [
                (0, .request(1, .unreachable)), (0, .request(2, .unreachable)), (0, .request(3, .unreachable)),
                (0, .rejected(4, .open(milliseconds: 1_000))),
            ], admitted: []),
        Row(
            name: "any response resets the count of connection failures",
            steps: [
                (0, .request(1, .unreachable)), (0, .request(1, .unreachable)), (0, .request(2, failed)),
                (0, .request(1, .unreachable)),
            ], admitted: [1, 2, 3, 4]),
        Row(
            name: "a probe of one account closes the shared breaker, even if its response is a failure",
            steps: [
                (0, .late(1, .unreachable)), (0, .late(1, .unreachable)), (0, .late(1, .unreachable)),
                (1_000, .request(4, failed)),
            ], admitted: [1, 2, 3, 4]),
        Row(
            name: "an account that cancels its probe may not probe next, and another account may",
            steps: [
                (0, .late(1, .unreachable)), (0, .late(1, .unreachable)), (0, .late(1, .unreachable)),
                (1_000, .request(1, .nothing)), (1_000, .rejected(1, .open(milliseconds: 1_000))),
                (1_999, .rejected(1, .open(milliseconds: 1))), (1_999, .request(2, .works)),
            ], admitted: [1, 2, 3, 4]),
        Row(
            name: "an account that cancelled its probe may probe again after the wait of a failed probe",
            steps: [
                (0, .late(1, .unreachable)), (0, .late(1, .unreachable)), (0, .late(1, .unreachable)),
                (1_000, .request(1, .nothing)), (1_000, .request(2, .nothing)), (2_000, .request(1, .nothing)),
            ], admitted: [2, 3, 4]),
        Row(
            name: "a failed probe after a cancelled one rejects all accounts",
            steps: [
                (0, .late(1, .unreachable)), (0, .late(1, .unreachable)), (0, .late(1, .unreachable)),
                (1_000, .request(1, .nothing)), (1_000, .request(2, .unreachable)),
                (1_000, .rejected(1, .open(milliseconds: 2_000))), (1_000, .rejected(3, .open(milliseconds: 2_000))),
                (3_000, .request(1, .works)),
            ], admitted: [1, 2, 3, 4]),
        Row(
            name: "after failures of several accounts, one failure opens the breaker of each further account",
            steps: [
                (0, .request(1, failed)), (0, .request(1, failed)), (0, .request(2, failed)),
                (0, .rejected(2, .open(milliseconds: 1_000))), (0, .request(3, failed)),
                (0, .rejected(3, .open(milliseconds: 1_000))), (0, .request(1, failed)),
            ], admitted: [4]),
        Row(
            name: "failures of many accounts do not affect others",
            steps: (10..<1_000).map { (0, .late($0 as UInt32, .failed(retryAfter: 20_000))) },
            admitted: [1, 2, 3, 4]),
        Row(
            name: "a success of any account restores the normal count",
            steps: [
                (0, .request(1, failed)), (0, .request(2, failed)), (0, .request(3, failed)), (0, .request(4, .works)),
                (0, .request(4, failed)), (0, .request(1, failed)),
            ], admitted: [1, 2, 4]),
        Row(
            name: "rejected credentials restore the normal count, too",
            steps: [
                (0, .request(1, failed)), (0, .request(2, failed)), (0, .late(3, .refused)), (0, .request(2, failed)),
            ], admitted: [1, 2, 3, 4]),
        Row(
            name: "an inconclusive result changes nothing",
            steps: [(0, .request(1, failed)), (0, .request(1, failed)), (0, .request(1, .nothing))],
            admitted: [1, 2, 3, 4]),
        Row(
            name:
                "a connection failure of an account's probe does not affect its breaker; its next request is the probe",
            steps: [
                (0, .request(1, .failed(retryAfter: 5_000))), (5_000, .request(1, .unreachable)),
                (5_000, .request(1, .works)), (5_000, .request(1, failed)),
            ], admitted: [1, 2, 3, 4]),
        Row(
            name: "an account's breaker with a longer wait stays open after the shared one has closed",
            steps: [
                (0, .late(1, .failed(retryAfter: 20_000))), (0, .late(2, .unreachable)), (0, .late(2, .unreachable)),
                (0, .late(2, .unreachable)), (1_000, .request(2, .works)),
                (1_000, .rejected(1, .open(milliseconds: 19_000))),
            ], admitted: [2, 3, 4]),
    ]

    @Test(arguments: rows)
    func `F68: failure responses open the breaker of one account, connection failures that of all`(
        _ row: Row
    ) throws {
        var breakers = CircuitBreakers()
        var last: Int64 = 0
        for (time, step) in row.steps {
            last = time
            let now = Self.at(time)
            switch step {
            case .request(let account, let finding):
                let permit = try breakers.acquirePermit(for: Self.host, account: account, at: now)
                breakers.record(finding, account: account, permit, at: time)
            case .late(let account, let finding): breakers.record(finding, account: account, at: time)
            case .rejected(let account, let rejection):
                #expect(throws: rejection) { try breakers.acquirePermit(for: Self.host, account: account, at: now) }
            }
        }
        #expect((1...4).filter { breakers.rejection(of: Self.host, for: $0, at: Self.at(last)) == nil } == row.admitted)
    }

    @Test func `F68: each breaker that opens or closes is reported`() throws {
        var breakers = CircuitBreakers()
        #expect(breakers.record(.failed(retryAfter: 1), account: 1) == [.opened(for: 1)])
        #expect(breakers.record(.failed(retryAfter: 1), account: 1) == [])
        #expect(breakers.record(.unreachable, account: 1) == [] && breakers.record(.unreachable, account: 2) == [])
        #expect(breakers.record(.unreachable, account: 3) == [.opened(for: nil)])
        #expect(breakers.record(.unreachable, account: 4) == [])
        var permit = try breakers.acquirePermit(for: Self.host, account: 2, at: Self.at(1_000))
        #expect(breakers.record(.nothing, account: 2, permit, at: 1_000) == [])
        permit = try breakers.acquirePermit(for: Self.host, account: 3, at: Self.at(1_000))
        let both = breakers.record(.failed(retryAfter: 9_000), account: 3, permit, at: 1_000)
        #expect(both == [.closed(for: nil), .opened(for: 3)])
        permit = try breakers.acquirePermit(for: Self.host, account: 3, at: Self.at(10_000))
        #expect(breakers.record(.works, account: 3, permit, at: 10_000) == [.closed(for: 3)])
    }

    @Test(arguments: [.nothing, .failed(retryAfter: 9_000), .unreachable, .works] as [CircuitBreakers.Finding])
    func `F68: a connection closes the shared breaker, and the response then concerns one account only`(
        _ finding: CircuitBreakers.Finding
    ) throws {
        var breakers = CircuitBreakers()
        for _ in 0..<3 {
            breakers.record(.unreachable, account: 1)
        }
        var permit = try breakers.acquirePermit(for: Self.host, account: 1, at: Self.at(1_000))
        #expect(breakers.rejection(of: Self.host, for: 2, at: Self.at(1_000)) == .probed)
        #expect(breakers.connected(Self.host, for: 1, with: &permit) == [.closed(for: nil)])
        #expect(breakers.connected(Self.host, for: 1, with: &permit) == [])
        #expect(breakers.rejection(of: Self.host, for: 2, at: Self.at(1_000)) == nil)
        let changes = breakers.record(finding, account: 1, permit, at: 1_000)
        #expect(changes == (finding == .failed(retryAfter: 9_000) ? [.opened(for: 1)] : []))
        #expect(breakers.rejection(of: Self.host, for: 2, at: Self.at(1_000)) == nil)
    }

    @Test func `F68: the probe of one account's breaker does not block other accounts`() throws {
        var breakers = CircuitBreakers()
        for account in [1, 2] as [UInt32] {
            breakers.record(.failed(retryAfter: 5_000), account: account)
        }
        _ = try breakers.acquirePermit(for: Self.host, account: 1, at: Self.at(5_000))
        #expect(breakers.rejection(of: Self.host, for: 1, at: Self.at(5_000)) == .probed)
        #expect(breakers.rejection(of: Self.host, for: 2, at: Self.at(5_000)) == nil)
        #expect(breakers.rejection(of: Self.host, for: 3, at: Self.at(5_000)) == nil)
    }

    @Test func `F37: failures of a host affect neither another host nor the same host of another origin`()
        throws
    {
        var breakers = CircuitBreakers()
        for _ in 0..<3 {
            breakers.record(.unreachable, account: 1)
        }
        #expect(breakers.rejection(of: Self.host, for: 1, at: Self.at(0)) == .open(milliseconds: 1_000))
        for other in [
            ("a", "http://host.example:81"), ("a", "https://host.example"), ("b", "http://host.example"),
        ] {
            let key = HostKey(origin: other.0, authority: other.1)
            #expect(breakers.rejection(of: key, for: 1, at: Self.at(0)) == nil)
        }
        #expect(figures(of: breakers, at: 400) == Figures(hosts: 1, accounts: 0, retryIn: 600, longest: 600))
        let permit = try breakers.acquirePermit(for: Self.host, account: 2, at: Self.at(1_000))
        breakers.record(.works, account: 2, permit, at: 1_000)
        #expect(breakers.count == (0, 0) && figures(of: breakers, at: 1_000) == Figures())
    }

    @Test func `I1: statistics separate shared breakers from those of single accounts`() {
        var breakers = CircuitBreakers()
        breakers.record(.failed(retryAfter: 9_000), account: 1)
        #expect(figures(of: breakers, at: 0) == Figures(hosts: 0, accounts: 1, retryIn: 0, longest: 9_000))
    }

    @Test func `I8: many hosts of one account evict entries of that account only`() {
        var breakers = CircuitBreakers()
        func record(_ finding: CircuitBreakers.Finding, _ host: HostKey, _ account: UInt32) {
            breakers.record(finding, of: host, for: account, from: .init(), at: Self.at(0), rules: Self.rules) {
                $0.lowerBound
            }
        }
        record(.failed(retryAfter: 1_000), Self.host, 2)
        for _ in 0..<3 { record(.unreachable, Self.host, 2) }
        for number in 0..<(CircuitBreakers.maximumHosts + 500) {
            record(.failed(retryAfter: Int64(2_000 + number)), Self.host(number), 1)
            record(.unreachable, Self.host(number), 1)
            #expect(breakers.count.hosts <= CircuitBreakers.maximumHosts)
            #expect(breakers.count.own <= CircuitBreakers.maximumPerAccount + 1)
        }
        #expect(breakers.count == (CircuitBreakers.maximumHosts, CircuitBreakers.maximumPerAccount + 1))
        // The entries that were evicted are those of the account, with the shortest remaining wait.
        #expect(breakers.rejection(of: Self.host, for: 3, at: Self.at(0)) != nil)
        #expect(breakers.rejection(of: Self.host, for: 2, at: Self.at(999)) != nil)
        #expect(breakers.rejection(of: Self.host(0), for: 1, at: Self.at(0)) == nil)
        #expect(breakers.rejection(of: Self.host(CircuitBreakers.maximumHosts + 499), for: 1, at: Self.at(0)) != nil)
    }

    @Test func `I8: the tables are bounded, and the account with the most entries loses one first`() {
        var breakers = CircuitBreakers()
        let full = CircuitBreakers.maximumOwnBreakers / CircuitBreakers.maximumPerAccount
        for account in 0..<UInt32(full + 100) {
            for number in 0..<CircuitBreakers.maximumPerAccount {
                breakers.record(
                    .failed(retryAfter: 9_000), of: Self.host(number), for: account, from: .init(), at: Self.at(0),
                    rules: Self.rules
                ) { $0.lowerBound }
            }
        }
        #expect(breakers.count.own == CircuitBreakers.maximumOwnBreakers)
        for account in 0..<UInt32(full + 100) {
            let remembered = (0..<CircuitBreakers.maximumPerAccount).count {
                breakers.rejection(of: Self.host($0), for: account, at: Self.at(0)) != nil
            }
            #expect(remembered > 0)
        }
    }
}

extension CircuitBreakers {
    /// Records a finding. Every wait is the longest possible.
    @discardableResult
    fileprivate mutating func record(
        _ finding: Finding, account: UInt32, _ permit: Permit = .init(), at milliseconds: Int64 = 0
    ) -> [Change] {
        record(
            finding, of: CircuitBreakersTests.host, for: account, from: permit,
            at: CircuitBreakersTests.at(milliseconds),
            rules: CircuitBreakersTests.rules
        ) { $0.upperBound }
    }
}
