import NIOCore
import ThumbnailCache

/// What is known of one host that images are asked from, and whether it may be asked now: a circuit breaker.
///
///     closed ── failures in a row, or a Retry-After ──> open ── its time is over ──> half-open ── it works ──> closed
///                                                         └─────────<── the one request failed ──┘
///
/// A value without effects, told the time and handed the randomness. Whoever may ask gets a permit and reports once for it what came of it,
/// also when nothing did. While it is open nobody asks; half-open, one request finds out for all.
struct HostHealth: Equatable, Sendable {
    /// What an operator can set, and how the wait grows.
    struct Rules: Equatable, Sendable {
        let failures: Int
        let backoff: Backoff
        let retryAfterMax: Int64

        init(_ patience: OriginPatience) {
            failures = max(1, patience.failures)
            backoff = Backoff(base: patience.backoff, most: patience.backoffMax)
            retryAfterMax = max(0, patience.retryAfterMax)
        }
    }

    enum State: Equatable, Sendable {
        /// Asked as usual, with so many failures in a row so far.
        case closed(failures: Int)
        /// Left alone until then, after so many attempts.
        case open(until: NIODeadline, attempt: Int)
        /// Being asked by one request, after so many attempts.
        case halfOpen(attempt: Int)
    }

    /// What a request was sent with.
    enum Permit: Equatable, Sendable {
        case usual
        case probe
    }

    /// Why a request is not sent.
    enum Refusal: Error, Equatable, Sendable {
        /// The host is left alone for so many milliseconds more.
        case leftAlone(milliseconds: Int64)
        /// One request is finding out whether the host is back.
        case probed
    }

    /// What a request showed of its host.
    enum Verdict: Equatable, Sendable {
        /// It answers: with an image, without one, or with a refusal that is the asker's own matter.
        case works
        /// It cannot be reached, breaks off, does not answer in time, or says that it is broken or asked too much.
        /// `retryAfter`: milliseconds that it asked to be left alone for.
        case failed(retryAfter: Int64?)
        /// Nothing: the request was cancelled, or failed for reasons of our own.
        case nothing
    }

    private(set) var state = State.closed(failures: 0)

    /// Whether there is nothing to remember.
    var isFine: Bool { state == .closed(failures: 0) }

    /// Why a request would not be sent now; nil when it would. Changes nothing.
    func refusal(at now: NIODeadline) -> Refusal? {
        switch state {
        case .closed: nil
        case .open(let until, _):
            // Rounded up: at the time that is told, the host may be asked.
            until > now ? .leftAlone(milliseconds: ((until - now).nanoseconds + 999_999) / 1_000_000) : nil
        case .halfOpen: .probed
        }
    }

    /// Asks to send a request, of which ``learn(_:from:at:rules:draw:)`` has to be told the end.
    mutating func ask(at now: NIODeadline) throws(Refusal) -> Permit {
        if let refusal = refusal(at: now) { throw refusal }
        guard case .open(_, let attempt) = state else { return .usual }
        state = .halfOpen(attempt: attempt)
        return .probe
    }

    /// What the request with that permit showed. Returns whether the host is left alone from now on, and was not before.
    @discardableResult
    mutating func learn(
        _ verdict: Verdict, from permit: Permit, at now: NIODeadline, rules: Rules, draw: Backoff.Draw
    ) -> Bool {
        switch state {
        case .closed(let failures):
            return learnClosed(verdict, failures, at: now, rules, draw)
        case .open(let until, let attempt):
            // Sent before it was opened. What the host asks for is obeyed; nothing else is news.
            if case .failed(let retryAfter?) = verdict {
                state = .open(
                    until: max(until, now + .milliseconds(min(retryAfter, rules.retryAfterMax))), attempt: attempt)
            }
            return false
        case .halfOpen(let attempt):
            guard permit == .probe else { return false }
            return learnHalfOpen(verdict, attempt, at: now, rules, draw)
        }
    }

    private mutating func learnClosed(
        _ verdict: Verdict, _ failures: Int, at now: NIODeadline, _ rules: Rules, _ draw: Backoff.Draw
    ) -> Bool {
        switch verdict {
        case .nothing: return false
        case .works:
            state = .closed(failures: 0)
            return false
        case .failed(let retryAfter):
            let asked = min(retryAfter ?? 0, rules.retryAfterMax)
            guard asked > 0 || failures + 1 >= rules.failures else {
                state = .closed(failures: failures + 1)
                return false
            }
            leaveAlone(asked, attempt: 1, at: now, rules, draw)
            return true
        }
    }

    private mutating func learnHalfOpen(
        _ verdict: Verdict, _ attempt: Int, at now: NIODeadline, _ rules: Rules, _ draw: Backoff.Draw
    ) -> Bool {
        switch verdict {
        case .nothing:
            // The next request finds out.
            state = .open(until: now, attempt: attempt)
            return false
        case .works:
            state = .closed(failures: 0)
            return false
        case .failed(let retryAfter):
            leaveAlone(min(retryAfter ?? 0, rules.retryAfterMax), attempt: attempt + 1, at: now, rules, draw)
            return true
        }
    }

    /// For what was asked for, or for what the backoff gives where that is longer.
    private mutating func leaveAlone(
        _ asked: Int64, attempt: Int, at now: NIODeadline, _ rules: Rules, _ draw: Backoff.Draw
    ) {
        let wait = max(asked, rules.backoff.wait(attempt: attempt, draw: draw))
        state = .open(until: now + .milliseconds(wait), attempt: attempt)
    }
}
