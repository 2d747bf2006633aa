import CacheCore
import NIOConcurrencyHelpers

/// A token endpoint whose answers the test gives by hand.
public final class FakeTokenEndpoint: TokenFetching {
    private struct State {
        var requests: [FakeTokenRequest] = []
        var refusal: TransferFailure?
        var answer: (@Sendable (TokenRequest) -> Result<TokenGrant, TransferFailure>)?
    }

    private let state = NIOLockedValueBox(State())
    private let log: EventLog

    /// - Parameter log: where cancelled requests are recorded, as `cancel token request`.
    public init(log: EventLog = EventLog()) {
        self.log = log
    }

    /// All requests made, in that order, whatever became of them.
    public var requests: [FakeTokenRequest] { state.withLockedValue { $0.requests } }

    /// While set, no request starts.
    public var refusal: TransferFailure? {
        get { state.withLockedValue { $0.refusal } }
        set { state.withLockedValue { $0.refusal = newValue } }
    }

    /// While set, a request has ended before `refresh` returns.
    public var answer: (@Sendable (TokenRequest) -> Result<TokenGrant, TransferFailure>)? {
        get { state.withLockedValue { $0.answer } }
        set { state.withLockedValue { $0.answer = newValue } }
    }

    /// Lets go of all requests made so far, so that they live as long as somebody else keeps them.
    public func forgetRequests() { state.withLockedValue { $0.requests = [] } }

    public func refresh(
        _ request: TokenRequest, onEnd: @escaping @Sendable (Result<TokenGrant, TransferFailure>) -> Void
    ) throws(TransferFailure) -> any DownloadHandle {
        let made = FakeTokenRequest(request: request, onEnd: onEnd, log: log)
        let (refusal, answer) = state.withLockedValue { ($0.refusal, $0.answer) }
        if let refusal { throw refusal }
        state.withLockedValue { $0.requests.append(made) }
        if let answer { made.end(answer(request)) }
        return made
    }
}

/// A token request under way, until the test ends it; also after it was cancelled, which the protocol allows.
public final class FakeTokenRequest: DownloadHandle {
    public let request: TokenRequest
    private let onEnd: @Sendable (Result<TokenGrant, TransferFailure>) -> Void
    private let log: EventLog
    private let wasCancelled = NIOLockedValueBox(false)

    init(
        request: TokenRequest, onEnd: @escaping @Sendable (Result<TokenGrant, TransferFailure>) -> Void, log: EventLog
    ) {
        self.request = request
        self.onEnd = onEnd
        self.log = log
    }

    public var isCancelled: Bool { wasCancelled.withLockedValue { $0 } }

    public func end(_ outcome: Result<TokenGrant, TransferFailure>) { onEnd(outcome) }

    public func cancel() {
        wasCancelled.withLockedValue { $0 = true }
        log.record("cancel token request")
    }
}
