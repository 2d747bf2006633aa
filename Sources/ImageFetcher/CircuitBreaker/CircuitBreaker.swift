import CacheCore
import NIOCore
import Origins

/// A circuit breaker: decides whether something that has failed may be tried now.
///
///     closed ── failures in a row, or a Retry-After ──> open ── its time is over ──> half-open ── success ──> closed
///                                                         └─────────<── the probe failed ────┘
///
/// A value without effects. A request first acquires a permit, with which its end is recorded once, even if the verdict
/// is ``Verdict/nothing``. An open breaker issues no permits; a half-open one has issued the permit of the probe, whose
/// verdict decides for all requests.
struct CircuitBreaker: Equatable, Sendable {
    struct Rules: Equatable, Sendable {
        var failures: Int
        let backoff: Backoff
        let retryAfterMax: Int64

        init(_ policy: BreakerPolicy) {
            failures = max(1, policy.failures)
            backoff = Backoff(base: policy.backoff, most: policy.backoffMax)
            retryAfterMax = max(0, policy.retryAfterMax)
        }
    }

    enum State: Equatable, Sendable {
        /// Requests are sent. `failures`: failures in a row.
        case closed(failures: Int)
        /// No requests are sent before `until`. `attempt`: how often the breaker has opened in a row.
        case open(until: NIODeadline, attempt: Int)
        /// One probe is in flight.
        case halfOpen(attempt: Int)
    }

    enum Permit: Equatable, Sendable {
        case usual, probe
    }

    /// Why a request is not sent.
    enum Rejection: Error, Equatable, Sendable {
        /// The breaker is open, for another `milliseconds`.
        case open(milliseconds: Int64)
        /// A probe is in flight.
        case probed
    }

    /// The observed result of a request.
    enum Verdict: Equatable, Sendable {
        case works
        /// `retryAfter`: milliseconds that the host requested.
        case failed(retryAfter: Int64?)
        /// The request was cancelled, or failed for other reasons.
        case nothing
    }

    private(set) var state = State.closed(failures: 0)

    var isClosed: Bool { if case .closed = state { true } else { false } }
    /// The attempts before the probe in flight; nil without a probe.
    var probedAttempt: Int? { if case .halfOpen(let attempt) = state { attempt } else { nil } }

    /// Whether the breaker is in its initial state, so that it need not be stored.
    var isInitial: Bool { state == .closed(failures: 0) }

    /// Why a request would not be sent now; nil if it would. Does not change the breaker.
    func rejection(at now: NIODeadline) -> Rejection? {
        switch state {
        case .closed: nil
        case .open(let until, _):
            until > now ? .open(milliseconds: until.millisecondsLeft(at: now)) : nil
        case .halfOpen: .probed
        }
    }

    /// Acquires a permit for a request, whose end must be reported with ``record(_:from:at:rules:draw:)``.
    mutating func acquirePermit(at now: NIODeadline) throws(Rejection) -> Permit {
        if let rejection = rejection(at: now) { throw rejection }
        guard case .open(_, let attempt) = state else { return .usual }
        state = .halfOpen(attempt: attempt)
        return .probe
    }

    /// Closes the breaker before the probe has ended, if the permit is the probe's. Returns whether it did.
    mutating func close(from permit: Permit) -> Bool {
        guard permit == .probe, case .halfOpen = state else { return false }
        state = .closed(failures: 0)
        return true
    }

    /// Records the verdict of the request with that permit. Returns whether it opens the breaker.
    @discardableResult
    mutating func record(
        _ verdict: Verdict, from permit: Permit, at now: NIODeadline, rules: Rules, draw: Backoff.Draw
    ) -> Bool {
        switch state {
        case .open(let until, let attempt):
            // The request was sent before the breaker opened. Only a Retry-After is news.
            if case .failed(let retryAfter?) = verdict {
                state = .open(
                    until: max(until, now + .milliseconds(min(retryAfter, rules.retryAfterMax))), attempt: attempt)
            }
            return false
        case .halfOpen where permit != .probe: return false
        case .closed, .halfOpen: break
        }
        guard case .failed(let retryAfter) = verdict else {
            if verdict == .works {
                state = .closed(failures: 0)
            } else if let probedAttempt {
                // The next request is the probe.
                state = .open(until: now, attempt: probedAttempt)
            }
            return false
        }
        let requested = min(retryAfter ?? 0, rules.retryAfterMax)
        if case .closed(let failures) = state, requested <= 0, failures + 1 < rules.failures {
            state = .closed(failures: failures + 1)
            return false
        }
        let attempt = (probedAttempt ?? 0) + 1
        let wait = max(requested, rules.backoff.wait(attempt: attempt, draw: draw))
        state = .open(until: now + .milliseconds(wait), attempt: attempt)
        return true
    }
}

extension CircuitBreaker.Rejection {
    /// Milliseconds that it lasts; 0 while a probe is in flight.
    var milliseconds: Int64 { if case .open(let milliseconds) = self { milliseconds } else { 0 } }

    func sentence(about authority: String) -> String {
        switch self {
        case .open(let milliseconds):
            "\(authority) failed; requests to it are suspended for \(milliseconds) ms"
        case .probed:
            "\(authority) failed, and one probe request is in flight; try again later"
        }
    }
}

extension NIODeadline {
    /// Rounded up, so that the deadline has passed when they are over.
    func millisecondsLeft(at now: NIODeadline) -> Int64 { ((self - now).nanoseconds + 999_999) / 1_000_000 }
}
