import NIOCore
import TestSupport
import Testing

@testable import CacheCore
@testable import ImageFetcher

/// The circuit breaker as a value, without sockets, clock or randomness (F37).
@Suite struct CircuitBreakerTests {
    private static let rules = CircuitBreaker.Rules(
        BreakerPolicy(failures: 3, backoff: 1_000, backoffMax: 8_000, retryAfterMax: 20_000))

    private static func at(_ milliseconds: Int64) -> NIODeadline { .uptimeNanoseconds(0) + .milliseconds(milliseconds) }

    /// An event and its time in milliseconds.
    enum Step: Sendable {
        /// A request that gets a permit and ends at once.
        case request(CircuitBreaker.Verdict)
        /// The end of a request that was sent much earlier.
        case late(CircuitBreaker.Verdict)
        /// A request that becomes the probe and does not end yet.
        case begin
        /// The end of the probe.
        case probe(CircuitBreaker.Verdict)
        /// A request that is rejected.
        case rejected(CircuitBreaker.Rejection)
    }

    struct Row: Sendable, CustomTestStringConvertible {
        let name: String
        let steps: [(at: Int64, Step)]
        let state: CircuitBreaker.State
        var testDescription: String { name }
    }

    private static let failure = CircuitBreaker.Verdict.failed(retryAfter: nil)
    private static func open(_ until: Int64, _ attempt: Int) -> CircuitBreaker.State {
        .open(until: at(until), attempt: attempt)
    }

    /// Every wait is the longest possible.
    static let rows: [Row] = [
        Row(name: "a success", steps: [(0, .request(.works))], state: .closed(failures: 0)),
        Row(
            name: "two failures do not open it", steps: [(0, .request(failure)), (1, .request(failure))],
            state: .closed(failures: 2)),
        Row(
            name: "a success in between resets the count",
            steps: [(0, .request(failure)), (1, .request(failure)), (2, .request(.works)), (3, .request(failure))],
            state: .closed(failures: 1)),
        Row(
            name: "an inconclusive result changes nothing",
            steps: [(0, .request(failure)), (1, .request(.nothing)), (2, .request(failure))],
            state: .closed(failures: 2)),
        Row(
            name: "three failures in a row open it",
            steps: [
                (0, .request(failure)), (1, .request(failure)), (2, .request(failure)),
                (2, .rejected(.open(milliseconds: 1_000))), (1_001, .rejected(.open(milliseconds: 1))),
            ], state: open(1_002, 1)),
        Row(
            name: "exactly one request is the probe",
            steps: [
                (0, .late(failure)), (0, .late(failure)), (0, .late(failure)),
                (1_000, .begin), (1_000, .rejected(.probed)), (9_999, .rejected(.probed)),
            ], state: .halfOpen(attempt: 1)),
        Row(
            name: "a successful probe closes it",
            steps: [
                (0, .late(failure)), (0, .late(failure)), (0, .late(failure)),
                (1_000, .begin), (1_500, .probe(.works)), (1_500, .request(.works)), (1_500, .request(failure)),
            ], state: .closed(failures: 1)),
        Row(
            name: "each failed probe doubles the wait",
            steps: [
                (0, .late(failure)), (0, .late(failure)), (0, .late(failure)),
                (1_000, .begin), (1_000, .probe(failure)), (3_000, .begin), (3_000, .probe(failure)),
                (7_000, .begin), (7_000, .probe(failure)), (15_000, .begin), (15_000, .probe(failure)),
            ], state: open(23_000, 5)),
        Row(
            name: "after a cancelled probe, the next request is the probe",
            steps: [
                (0, .late(failure)), (0, .late(failure)), (0, .late(failure)),
                (1_000, .begin), (1_200, .probe(.nothing)), (1_200, .begin), (1_200, .rejected(.probed)),
            ], state: .halfOpen(attempt: 1)),
        Row(
            name: "results of requests from before it opened are ignored",
            steps: [
                (0, .late(failure)), (0, .late(failure)), (0, .late(failure)), (1, .late(failure)), (2, .late(.works)),
                (3, .late(.nothing)),
            ], state: open(1_000, 1)),
        Row(
            name: "results of earlier requests are ignored during a probe",
            steps: [
                (0, .late(failure)), (0, .late(failure)), (0, .late(failure)), (1_000, .begin),
                (1_001, .late(.works)), (1_002, .late(failure)), (1_003, .late(.nothing)),
            ], state: .halfOpen(attempt: 1)),
        Row(
            name: "Retry-After is obeyed the first time", steps: [(0, .request(.failed(retryAfter: 7_000)))],
            state: open(7_000, 1)),
        Row(
            name: "a Retry-After shorter than the backoff does not shorten it",
            steps: [(0, .request(.failed(retryAfter: 10)))], state: open(1_000, 1)),
        Row(
            name: "a Retry-After of an hour is capped", steps: [(0, .request(.failed(retryAfter: 3_600_000)))],
            state: open(20_000, 1)),
        Row(
            name: "a later Retry-After can extend the wait, but not shorten it",
            steps: [
                (0, .request(.failed(retryAfter: 5_000))), (1_000, .late(.failed(retryAfter: 9_000))),
                (2_000, .late(.failed(retryAfter: 1_000))),
            ], state: open(10_000, 1)),
        Row(
            name: "a Retry-After of the probe",
            steps: [
                (0, .request(.failed(retryAfter: 5_000))), (5_000, .begin),
                (5_100, .probe(.failed(retryAfter: 15_000))),
            ], state: open(20_100, 2)),
    ]

    @Test(arguments: rows)
    func `F37: an open breaker rejects requests for a while, then admits one probe`(_ row: Row) throws {
        var breaker = CircuitBreaker()
        for (time, step) in row.steps {
            let now = Self.at(time)
            func record(_ verdict: CircuitBreaker.Verdict, _ permit: CircuitBreaker.Permit) {
                breaker.record(verdict, from: permit, at: now, rules: Self.rules) { $0.upperBound }
            }
            switch step {
            case .request(let verdict): record(verdict, try breaker.acquirePermit(at: now))
            case .late(let verdict): record(verdict, .usual)
            case .begin: #expect(try breaker.acquirePermit(at: now) == .probe)
            case .probe(let verdict): record(verdict, .probe)
            case .rejected(let rejection):
                let before = breaker
                #expect(throws: rejection) { try breaker.acquirePermit(at: now) }
                #expect(breaker == before)
            }
        }
        #expect(breaker.state == row.state)
    }

    /// The number of requests in a minute of constant demand: one attempt every `step` milliseconds, each ending at
    /// once.
    private func requestsInAMinute(
        every step: Int = 1, answer: CircuitBreaker.Verdict, draw: (ClosedRange<Int64>) -> Int64
    ) -> Int {
        var breaker = CircuitBreaker()
        let rules = CircuitBreaker.Rules(BreakerPolicy())
        var requests = 0
        for millisecond in stride(from: Int64(0), to: 60_000, by: step) {
            let now = Self.at(millisecond)
            guard let permit = try? breaker.acquirePermit(at: now) else { continue }
            requests += 1
            breaker.record(answer, from: permit, at: now, rules: rules, draw: draw)
        }
        return requests
    }

    @Test func `F37: the backoff limits the requests to an origin that fails for a minute`() {
        // Waits of 1, 2, 4, 8, 16 and 32 s: probes at 0, 1, 3, 7, 15 and 31 s; the next would follow at 63 s.
        #expect(requestsInAMinute(answer: Self.failure) { $0.upperBound } == 5 + 5)
        // The shortest waits, a tenth of each: 0.1, 0.2, … 3.2 s, then 6 s.
        #expect(requestsInAMinute(answer: Self.failure) { _ in 0 } == 5 + 6 + 8)
        #expect(requestsInAMinute(answer: .failed(retryAfter: 30_000)) { $0.lowerBound } == 2)
        #expect(requestsInAMinute(answer: .failed(retryAfter: 3_600_000)) { $0.lowerBound } == 1)
        #expect(requestsInAMinute(answer: .works) { $0.lowerBound } == 60_000)
    }

    @Test func `F37: with random waits, the requests in a minute stay within bounds`() {
        var random = SeededRandom(seed: 1)
        var counts: [Int] = []
        for _ in 0..<50 {
            counts.append(requestsInAMinute(every: 10, answer: Self.failure) { Int64.random(in: $0, using: &random) })
        }
        #expect(counts.allSatisfy { (10...19).contains($0) })
        // The waits are random.
        #expect(Set(counts).count > 3)
    }
}
