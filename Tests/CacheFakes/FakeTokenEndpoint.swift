import CacheCore
import NIOConcurrencyHelpers

/// A token endpoint whose responses are given by the test.
public final class FakeTokenEndpoint: TokenFetching {
    private struct State {
        var requests: [FakeTokenRequest] = []
        var refusal: FetchFailure?
        var answer: (@Sendable (TokenRequest) -> Result<TokenGrant, FetchFailure>)?
        var onStart: (@Sendable (FakeTokenRequest) -> Void)?
    }

    private let state = NIOLockedValueBox(State())
    private let log: EventLog

    /// - Parameter log: where cancelled requests are recorded, as `cancel token request`.
    public init(log: EventLog = EventLog()) {
        self.log = log
    }

    /// All requests, in order, including ended ones.
    public var requests: [FakeTokenRequest] { state.withLockedValue { $0.requests } }

    /// While set, no request starts.
    public var refusal: FetchFailure? {
        get { state.withLockedValue { $0.refusal } }
        set { state.withLockedValue { $0.refusal = newValue } }
    }

    /// While set, a request ends with the returned outcome before `refresh` returns.
    public var answer: (@Sendable (TokenRequest) -> Result<TokenGrant, FetchFailure>)? {
        get { state.withLockedValue { $0.answer } }
        set { state.withLockedValue { $0.answer = newValue } }
    }

    /// While set, gets each request that starts. It is then not in ``requests``.
    public var onStart: (@Sendable (FakeTokenRequest) -> Void)? {
        get { state.withLockedValue { $0.onStart } }
        set { state.withLockedValue { $0.onStart = newValue } }
    }

    /// Releases all requests so far.
    public func forgetRequests() { state.withLockedValue { $0.requests = [] } }

    public func refresh(
        _ request: TokenRequest, onEnd: @escaping @Sendable (Result<TokenGrant, FetchFailure>) -> Void
    ) throws(FetchFailure) -> any DownloadHandle {
        let made = FakeTokenRequest(request: request, onEnd: onEnd, log: log)
        let (refusal, answer, onStart) = state.withLockedValue { ($0.refusal, $0.answer, $0.onStart) }
        if let refusal { throw refusal }
        if let onStart {
            onStart(made)
            return made
        }
        state.withLockedValue { $0.requests.append(made) }
        if let answer { made.end(answer(request)) }
        return made
    }
}

/// A token request in flight that the test ends. Ending it after ``cancel()`` is allowed; later calls do nothing.
public final class FakeTokenRequest: DownloadHandle {
    private struct State {
        var isCancelled = false
        /// Nil after the end, as in the fetcher's client: it retains what retains this handle.
        var onEnd: (@Sendable (Result<TokenGrant, FetchFailure>) -> Void)?
    }

    public let request: TokenRequest
    private let log: EventLog
    private let state: NIOLockedValueBox<State>

    init(
        request: TokenRequest, onEnd: @escaping @Sendable (Result<TokenGrant, FetchFailure>) -> Void, log: EventLog
    ) {
        self.request = request
        self.log = log
        state = NIOLockedValueBox(State(onEnd: onEnd))
    }

    public var isCancelled: Bool { state.withLockedValue { $0.isCancelled } }

    public func end(_ outcome: Result<TokenGrant, FetchFailure>) {
        let onEnd = state.withLockedValue { $0.onEnd.take() }
        onEnd?(outcome)
    }

    public func cancel() {
        state.withLockedValue { $0.isCancelled = true }
        log.record("cancel token request")
    }
}
