import CacheCore
import NIOCore
import Origins

/// Whether something that has failed may be tried now.
///
///     closed ── failures in a row, or a Retry-After ──> open ── its time is over ──> half-open ── it works ──> closed
///                                                         └─────────<── the one request failed ──┘
///
/// A value without effects, told the time and handed the randomness. Whoever may ask gets a permit and reports once for
/// it what came of it, also when nothing did. While it is open nobody asks; half-open, one request finds out for all.
struct CircuitBreaker: Equatable, Sendable {
    /// What an operator can set, and how the wait grows.
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
        /// Asked as usual, with so many failures in a row so far.
        case closed(failures: Int)
        /// Not asked until then, after so many attempts.
        case open(until: NIODeadline, attempt: Int)
        /// Being asked by one request, after so many attempts.
        case halfOpen(attempt: Int)
    }

    /// What a request was sent with.
    enum Permit: Equatable, Sendable {
        case usual, probe
    }

    /// Why a request is not sent.
    enum Rejection: Error, Equatable, Sendable {
        /// The breaker is open for so many milliseconds more.
        case open(milliseconds: Int64)
        /// One request is finding out whether it can be closed.
        case probed
    }

    /// What a request showed.
    enum Verdict: Equatable, Sendable {
        case works
        /// `retryAfter`: milliseconds that were asked for.
        case failed(retryAfter: Int64?)
        /// Nothing: the request was cancelled, or failed for other reasons.
        case nothing
    }

    private(set) var state = State.closed(failures: 0)

    var isClosed: Bool { if case .closed = state { true } else { false } }
    /// The attempts before the request that is finding out; nil where none is.
    var probedAttempt: Int? { if case .halfOpen(let attempt) = state { attempt } else { nil } }

    /// Whether there is nothing to remember.
    var isFine: Bool { state == .closed(failures: 0) }

    /// Why a request would not be sent now; nil when it would. Changes nothing.
    func rejection(at now: NIODeadline) -> Rejection? {
        switch state {
        case .closed: nil
        case .open(let until, _):
            until > now ? .open(milliseconds: until.millisecondsLeft(at: now)) : nil
        case .halfOpen: .probed
        }
    }

    /// Asks to send a request, of which ``learn(_:from:at:rules:draw:)`` has to be told the end.
    mutating func ask(at now: NIODeadline) throws(Rejection) -> Permit {
        if let rejection = rejection(at: now) { throw rejection }
        guard case .open(_, let attempt) = state else { return .usual }
        state = .halfOpen(attempt: attempt)
        return .probe
    }

    /// The request that is finding out has found that it works, before its end. Returns whether that closes it.
    mutating func close(from permit: Permit) -> Bool {
        guard permit == .probe, case .halfOpen = state else { return false }
        state = .closed(failures: 0)
        return true
    }

    /// What the request with that permit showed. Returns whether it is open from now on, and was not before.
    @discardableResult
    mutating func learn(
        _ verdict: Verdict, from permit: Permit, at now: NIODeadline, rules: Rules, draw: Backoff.Draw
    ) -> Bool {
        switch state {
        case .open(let until, let attempt):
            // Sent before it was opened. A Retry-After is obeyed; nothing else is news.
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
                // The next request finds out.
                state = .open(until: now, attempt: probedAttempt)
            }
            return false
        }
        let asked = min(retryAfter ?? 0, rules.retryAfterMax)
        if case .closed(let failures) = state, asked <= 0, failures + 1 < rules.failures {
            state = .closed(failures: failures + 1)
            return false
        }
        // For what was asked for, or for what the backoff gives where that is longer.
        let attempt = (probedAttempt ?? 0) + 1
        let wait = max(asked, rules.backoff.wait(attempt: attempt, draw: draw))
        state = .open(until: now + .milliseconds(wait), attempt: attempt)
        return true
    }
}

extension NIODeadline {
    /// Rounded up: when they are over, it is that time.
    func millisecondsLeft(at now: NIODeadline) -> Int64 { ((self - now).nanoseconds + 999_999) / 1_000_000 }
}
