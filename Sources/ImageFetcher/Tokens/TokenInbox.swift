import DequeModule
import NIOConcurrencyHelpers
import NIOCore
import ThumbnailCache

/// Where those who want tokens and the fetcher's thread meet: what ``DownloadScheduler`` is to downloads. There is one request per user
/// at most, and of each uid no more than of downloads.
final class TokenInbox: Sendable {
    private struct State {
        var wakeup: LoopWakeup?
        var lastID: UInt64 = 0
        /// Not yet taken by the thread.
        var new: [TokenTicket] = []
        var cancelled: [TokenTicket] = []
        /// Handed out and not ended, of each uid.
        var open: [UInt32: Int] = [:]
        /// How many that may be of one uid.
        var limit: Int
    }

    private let state: NIOLockedValueBox<State>

    init(configuration: FetcherConfiguration) {
        state = NIOLockedValueBox(State(limit: Self.limit(configuration)))
    }

    func update(_ configuration: FetcherConfiguration) {
        state.withLockedValue { $0.limit = Self.limit(configuration) }
    }

    private static func limit(_ configuration: FetcherConfiguration) -> Int {
        configuration.downloadsPerUID + configuration.queuePerUID
    }

    func start(
        _ request: TokenRequest, at now: NIODeadline,
        onEnd: @escaping @Sendable (Result<TokenGrant, TokenFailure>) -> Void
    ) throws(TokenFailure) -> TokenTicket {
        let result: Result<TokenTicket, TokenFailure> = state.withLockedValue { state in
            guard let wakeup = state.wakeup else { return .failure(.shuttingDown) }
            guard state.open[request.uid, default: 0] < state.limit else {
                let sentence = "\(state.limit) tokens of this uid are being renewed already: try again later"
                return .failure(.busy(sentence))
            }
            state.lastID += 1
            state.open[request.uid, default: 0] += 1
            let deadline = now + .milliseconds(request.origin.timeout)
            let ticket = TokenTicket(
                id: state.lastID, request: request, deadline: deadline, scheduler: self, onEnd: onEnd)
            state.new.append(ticket)
            wakeup.wake()
            return .success(ticket)
        }
        return try result.get()
    }

    fileprivate func cancel(_ ticket: TokenTicket) {
        state.withLockedValue { state in
            guard let wakeup = state.wakeup else { return }
            state.cancelled.append(ticket)
            wakeup.wake()
        }
    }

    // MARK: For the thread

    func open(_ wakeup: LoopWakeup) {
        state.withLockedValue { $0.wakeup = wakeup }
    }

    func takeWork() -> (new: [TokenTicket], cancelled: [TokenTicket]) {
        state.withLockedValue { state in
            defer { (state.new, state.cancelled) = ([], []) }
            return (state.new, state.cancelled)
        }
    }

    /// A request has ended, or was let go of.
    func finish(_ ticket: TokenTicket) {
        let uid = ticket.request.uid
        state.withLockedValue { state in
            let rest = state.open[uid, default: 1] - 1
            state.open[uid] = rest == 0 ? nil : rest
            // One that waits may begin now, and nothing else would tell the thread.
            state.wakeup?.wake()
        }
    }

    /// Takes no requests any more and rings no more; gives out those that the thread has never seen.
    func close() -> [TokenTicket] {
        state.withLockedValue { state in
            state.wakeup = nil
            defer { (state.new, state.cancelled) = ([], []) }
            return state.new
        }
    }
}

/// One token request: what its owner holds, and the only way to tell the owner how it ended. As ``DownloadTicket``.
final class TokenTicket: DownloadHandle {
    let id: UInt64
    let request: TokenRequest
    /// When it is too late to begin. One that has begun has all of its time, see ``TokenTransfer``.
    let deadline: NIODeadline
    private let scheduler: TokenInbox
    private let onEnd: NIOLockedValueBox<(@Sendable (Result<TokenGrant, TokenFailure>) -> Void)?>

    fileprivate init(
        id: UInt64, request: TokenRequest, deadline: NIODeadline, scheduler: TokenInbox,
        onEnd: @escaping @Sendable (Result<TokenGrant, TokenFailure>) -> Void
    ) {
        self.id = id
        self.request = request
        self.deadline = deadline
        self.scheduler = scheduler
        self.onEnd = NIOLockedValueBox(onEnd)
    }

    func cancel() {
        guard onEnd.withLockedValue({ $0.take() }) != nil else { return }
        scheduler.cancel(self)
    }

    /// Tells the outcome, outside of every lock.
    func end(_ outcome: Result<TokenGrant, TokenFailure>) {
        onEnd.withLockedValue { $0.take() }?(outcome)
    }
}

extension CurlImageFetcher: TokenFetching {
    public func refresh(
        _ request: TokenRequest, onEnd: @escaping @Sendable (Result<TokenGrant, TokenFailure>) -> Void
    ) throws(TokenFailure) -> any DownloadHandle {
        try tokenInbox.start(request, at: .now(), onEnd: onEnd)
    }
}
