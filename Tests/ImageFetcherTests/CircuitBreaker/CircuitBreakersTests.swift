import HelperProtocol
import NIOCore
import Testing

@testable import CacheCore
@testable import ImageFetcher

/// The breakers of hosts and uids as a value, without sockets, clock or randomness.
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

    /// An event of a uid's request.
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
        /// The uids from 1 to 4 whose requests are admitted at the end.
        let admitted: [UInt32]
        var testDescription: String { name }
    }

    /// Every wait is the longest possible.
    static let rows: [Row] = [
        Row(
            name: "any number of failures of one uid opens the breaker of that uid only",
            steps: (0..<1_000).map { _ in (0, .late(1, failed)) }, admitted: [2, 3, 4]),
        Row(
            name: "a Retry-After opens the breaker of that uid only",
            steps: [
                (0, .request(1, .failed(retryAfter: 15_000))), (0, .rejected(1, .open(milliseconds: 15_000))),
                (14_999, .rejected(1, .open(milliseconds: 1))),
            ], admitted: [2, 3, 4]),
        Row(
            name: "rejected credentials count like failures of that uid",
            steps: [
                (0, .request(1, .refused)), (0, .request(1, .refused)), (0, .request(2, .refused)),
                (0, .request(1, .refused)),
            ], admitted: [2, 3, 4]),
        Row(
            name: "a success of another uid does not reset the count",
            steps: [
                (0, .request(1, failed)), (0, .request(1, failed)), (0, .request(2, .works)), (0, .request(1, failed)),
            ], admitted: [2, 3, 4]),
        Row(
            name: "a success of the uid resets its count",
            steps: [
                (0, .request(1, failed)), (0, .request(1, failed)), (0, .request(1, .works)), (0, .request(1, failed)),
            ], admitted: [1, 2, 3, 4]),
        Row(
            name: "connection failures of one uid open the shared breaker",
            steps: [
                (0, .request(1, .unreachable)), (0, .request(1, .unreachable)), (0, .request(1, .unreachable)),
                (0, .rejected(2, .open(milliseconds: 1_000))),
            ], admitted: []),
        Row(
            name: "connection failures of several uids open the shared breaker",
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
            name: "a probe of one uid closes the shared breaker, even if its response is a failure",
            steps: [
                (0, .late(1, .unreachable)), (0, .late(1, .unreachable)), (0, .late(1, .unreachable)),
                (1_000, .request(4, failed)),
            ], admitted: [1, 2, 3, 4]),
        Row(
            name: "a uid that cancels its probe may not probe next, and another uid may",
            steps: [
                (0, .late(1, .unreachable)), (0, .late(1, .unreachable)), (0, .late(1, .unreachable)),
                (1_000, .request(1, .nothing)), (1_000, .rejected(1, .open(milliseconds: 1_000))),
                (1_999, .rejected(1, .open(milliseconds: 1))), (1_999, .request(2, .works)),
            ], admitted: [1, 2, 3, 4]),
        Row(
            name: "a uid that cancelled its probe may probe again after the wait of a failed probe",
            steps: [
                (0, .late(1, .unreachable)), (0, .late(1, .unreachable)), (0, .late(1, .unreachable)),
                (1_000, .request(1, .nothing)), (1_000, .request(2, .nothing)), (2_000, .request(1, .nothing)),
            ], admitted: [2, 3, 4]),
        Row(
            name: "a failed probe after a cancelled one rejects all uids",
            steps: [
                (0, .late(1, .unreachable)), (0, .late(1, .unreachable)), (0, .late(1, .unreachable)),
                (1_000, .request(1, .nothing)), (1_000, .request(2, .unreachable)),
                (1_000, .rejected(1, .open(milliseconds: 2_000))), (1_000, .rejected(3, .open(milliseconds: 2_000))),
                (3_000, .request(1, .works)),
            ], admitted: [1, 2, 3, 4]),
        Row(
            name: "after failures of several uids, one failure opens the breaker of each further uid",
            steps: [
                (0, .request(1, failed)), (0, .request(1, failed)), (0, .request(2, failed)),
                (0, .rejected(2, .open(milliseconds: 1_000))), (0, .request(3, failed)),
                (0, .rejected(3, .open(milliseconds: 1_000))), (0, .request(1, failed)),
            ], admitted: [4]),
        Row(
            name: "failures of many uids of one account do not affect other uids",
            steps: (10..<1_000).map { (0, .late($0 as UInt32, .failed(retryAfter: 20_000))) },
            admitted: [1, 2, 3, 4]),
        Row(
            name: "a success of any uid restores the normal count",
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
            name: "a connection failure of a uid's probe does not affect its breaker; its next request is the probe",
            steps: [
                (0, .request(1, .failed(retryAfter: 5_000))), (5_000, .request(1, .unreachable)),
                (5_000, .request(1, .works)), (5_000, .request(1, failed)),
            ], admitted: [1, 2, 3, 4]),
        Row(
            name: "a uid's breaker with a longer wait stays open after the shared one has closed",
            steps: [
                (0, .late(1, .failed(retryAfter: 20_000))), (0, .late(2, .unreachable)), (0, .late(2, .unreachable)),
                (0, .late(2, .unreachable)), (1_000, .request(2, .works)),
                (1_000, .rejected(1, .open(milliseconds: 19_000))),
            ], admitted: [2, 3, 4]),
    ]

    @Test(arguments: rows)
    func `F68: failure responses open the breaker of one uid, connection failures that of all`(
        _ row: Row
    ) throws {
        var breakers = CircuitBreakers()
        var last: Int64 = 0
        for (time, step) in row.steps {
            last = time
            let now = Self.at(time)
            switch step {
            case .request(let uid, let finding):
                let permit = try breakers.acquirePermit(for: Self.host, uid: uid, at: now)
                breakers.record(finding, uid: uid, permit, at: time)
            case .late(let uid, let finding): breakers.record(finding, uid: uid, at: time)
            case .rejected(let uid, let rejection):
                #expect(throws: rejection) { try breakers.acquirePermit(for: Self.host, uid: uid, at: now) }
            }
        }
        #expect((1...4).filter { breakers.rejection(of: Self.host, for: $0, at: Self.at(last)) == nil } == row.admitted)
    }

    @Test func `F68: each breaker that opens or closes is reported`() throws {
        var breakers = CircuitBreakers()
        #expect(breakers.record(.failed(retryAfter: 1), uid: 1) == [.opened(for: 1)])
        #expect(breakers.record(.failed(retryAfter: 1), uid: 1) == [])
        #expect(breakers.record(.unreachable, uid: 1) == [] && breakers.record(.unreachable, uid: 2) == [])
        #expect(breakers.record(.unreachable, uid: 3) == [.opened(for: nil)])
        #expect(breakers.record(.unreachable, uid: 4) == [])
        var permit = try breakers.acquirePermit(for: Self.host, uid: 2, at: Self.at(1_000))
        #expect(breakers.record(.nothing, uid: 2, permit, at: 1_000) == [])
        permit = try breakers.acquirePermit(for: Self.host, uid: 3, at: Self.at(1_000))
        let both = breakers.record(.failed(retryAfter: 9_000), uid: 3, permit, at: 1_000)
        #expect(both == [.closed(for: nil), .opened(for: 3)])
        permit = try breakers.acquirePermit(for: Self.host, uid: 3, at: Self.at(10_000))
        #expect(breakers.record(.works, uid: 3, permit, at: 10_000) == [.closed(for: 3)])
    }

    @Test(arguments: [.nothing, .failed(retryAfter: 9_000), .unreachable, .works] as [CircuitBreakers.Finding])
    func `F68: a connection closes the shared breaker, and the response then concerns one uid only`(
        _ finding: CircuitBreakers.Finding
    ) throws {
        var breakers = CircuitBreakers()
        for _ in 0..<3 {
            breakers.record(.unreachable, uid: 1)
        }
        var permit = try breakers.acquirePermit(for: Self.host, uid: 1, at: Self.at(1_000))
        #expect(breakers.rejection(of: Self.host, for: 2, at: Self.at(1_000)) == .probed)
        #expect(breakers.connected(Self.host, for: 1, with: &permit) == [.closed(for: nil)])
        #expect(breakers.connected(Self.host, for: 1, with: &permit) == [])
        #expect(breakers.rejection(of: Self.host, for: 2, at: Self.at(1_000)) == nil)
        let changes = breakers.record(finding, uid: 1, permit, at: 1_000)
        #expect(changes == (finding == .failed(retryAfter: 9_000) ? [.opened(for: 1)] : []))
        #expect(breakers.rejection(of: Self.host, for: 2, at: Self.at(1_000)) == nil)
    }

    @Test func `F68: the probe of one uid's breaker does not block other uids`() throws {
        var breakers = CircuitBreakers()
        for uid in [1, 2] as [UInt32] {
            breakers.record(.failed(retryAfter: 5_000), uid: uid)
        }
        _ = try breakers.acquirePermit(for: Self.host, uid: 1, at: Self.at(5_000))
        #expect(breakers.rejection(of: Self.host, for: 1, at: Self.at(5_000)) == .probed)
        #expect(breakers.rejection(of: Self.host, for: 2, at: Self.at(5_000)) == nil)
        #expect(breakers.rejection(of: Self.host, for: 3, at: Self.at(5_000)) == nil)
    }

    @Test func `F37: failures of a host affect neither another host nor the same host of another origin`()
        throws
    {
        var breakers = CircuitBreakers()
        for _ in 0..<3 {
            breakers.record(.unreachable, uid: 1)
        }
        #expect(breakers.rejection(of: Self.host, for: 1, at: Self.at(0)) == .open(milliseconds: 1_000))
        for other in [
            ("a", "http://host.example:81"), ("a", "https://host.example"), ("b", "http://host.example"),
        ] {
            let key = HostKey(origin: other.0, authority: other.1)
            #expect(breakers.rejection(of: key, for: 1, at: Self.at(0)) == nil)
        }
        #expect(figures(of: breakers, at: 400) == Figures(hosts: 1, uids: 0, retryIn: 600, longest: 600))
        let permit = try breakers.acquirePermit(for: Self.host, uid: 2, at: Self.at(1_000))
        breakers.record(.works, uid: 2, permit, at: 1_000)
        #expect(breakers.count == (0, 0) && figures(of: breakers, at: 1_000) == Figures())
    }

    @Test func `I1: statistics separate shared breakers from those of single uids`() {
        var breakers = CircuitBreakers()
        breakers.record(.failed(retryAfter: 9_000), uid: 1)
        #expect(figures(of: breakers, at: 0) == Figures(hosts: 0, uids: 1, retryIn: 0, longest: 9_000))
    }

    @Test func `I8: many hosts of one uid evict entries of that uid only`() {
        var breakers = CircuitBreakers()
        func record(_ finding: CircuitBreakers.Finding, _ host: HostKey, _ uid: UInt32) {
            breakers.record(finding, of: host, for: uid, from: .init(), at: Self.at(0), rules: Self.rules) {
                $0.lowerBound
            }
        }
        record(.failed(retryAfter: 1_000), Self.host, 2)
        for _ in 0..<3 { record(.unreachable, Self.host, 2) }
        for number in 0..<(CircuitBreakers.maximumHosts + 500) {
            record(.failed(retryAfter: Int64(2_000 + number)), Self.host(number), 1)
            record(.unreachable, Self.host(number), 1)
            #expect(breakers.count.hosts <= CircuitBreakers.maximumHosts)
            #expect(breakers.count.own <= CircuitBreakers.maximumPerUID + 1)
        }
        #expect(breakers.count == (CircuitBreakers.maximumHosts, CircuitBreakers.maximumPerUID + 1))
        // The entries that were evicted are those of the uid, with the shortest remaining wait.
        #expect(breakers.rejection(of: Self.host, for: 3, at: Self.at(0)) != nil)
        #expect(breakers.rejection(of: Self.host, for: 2, at: Self.at(999)) != nil)
        #expect(breakers.rejection(of: Self.host(0), for: 1, at: Self.at(0)) == nil)
        #expect(breakers.rejection(of: Self.host(CircuitBreakers.maximumHosts + 499), for: 1, at: Self.at(0)) != nil)
    }

    @Test func `I8: the tables are bounded, and the uid with the most entries loses one first`() {
        var breakers = CircuitBreakers()
        let full = CircuitBreakers.maximumOwnBreakers / CircuitBreakers.maximumPerUID
        for uid in 0..<UInt32(full + 100) {
            for number in 0..<CircuitBreakers.maximumPerUID {
                breakers.record(
                    .failed(retryAfter: 9_000), of: Self.host(number), for: uid, from: .init(), at: Self.at(0),
                    rules: Self.rules
                ) { $0.lowerBound }
            }
        }
        #expect(breakers.count.own == CircuitBreakers.maximumOwnBreakers)
        for uid in 0..<UInt32(full + 100) {
            let remembered = (0..<CircuitBreakers.maximumPerUID).count {
                breakers.rejection(of: Self.host($0), for: uid, at: Self.at(0)) != nil
            }
            #expect(remembered > 0)
        }
    }
}

extension CircuitBreakers {
    /// Records a finding. Every wait is the longest possible.
    @discardableResult
    fileprivate mutating func record(
        _ finding: Finding, uid: UInt32, _ permit: Permit = .init(), at milliseconds: Int64 = 0
    ) -> [Change] {
        record(
            finding, of: CircuitBreakersTests.host, for: uid, from: permit, at: CircuitBreakersTests.at(milliseconds),
            rules: CircuitBreakersTests.rules
        ) { $0.upperBound }
    }
}
