import DequeModule
import NIOConcurrencyHelpers
import NIOCore
import ThumbnailCache

/// Where those who want tokens and the fetcher's thread meet: what ``DownloadDesk`` is to downloads. There is one request per user
/// at most, so that nobody has to be given a fair turn; they begin in the order they came.
final class TokenDesk: Sendable {
    /// How many may wait for the thread, of all users.
    static let longestLine = 1_024

    private struct State {
        var bell: Bell?
        var lastID: UInt64 = 0
        /// Not yet taken by the thread.
        var new: [TokenTicket] = []
        var cancelled: [TokenTicket] = []
        /// Handed out and not ended.
        var open = 0
    }

    private let state = NIOLockedValueBox(State())

    func start(
        _ request: TokenRequest, at now: NIODeadline,
        onEnd: @escaping @Sendable (Result<TokenGrant, TokenFailure>) -> Void
    ) throws(TokenFailure) -> TokenTicket {
        let result: Result<TokenTicket, TokenFailure> = state.withLockedValue { state in
            guard let bell = state.bell else { return .failure(.shuttingDown) }
            guard state.open < Self.longestLine else {
                return .failure(.busy("\(Self.longestLine) tokens are being renewed already: try again later"))
            }
            state.lastID += 1
            state.open += 1
            let deadline = now + .milliseconds(request.origin.timeout)
            let ticket = TokenTicket(id: state.lastID, request: request, deadline: deadline, desk: self, onEnd: onEnd)
            state.new.append(ticket)
            bell.ring()
            return .success(ticket)
        }
        return try result.get()
    }

    fileprivate func cancel(_ ticket: TokenTicket) {
        state.withLockedValue { state in
            guard let bell = state.bell else { return }
            state.cancelled.append(ticket)
            bell.ring()
        }
    }

    // MARK: For the thread

    func open(_ bell: Bell) {
        state.withLockedValue { $0.bell = bell }
    }

    func takeWork() -> (new: [TokenTicket], cancelled: [TokenTicket]) {
        state.withLockedValue { state in
            defer { (state.new, state.cancelled) = ([], []) }
            return (state.new, state.cancelled)
        }
    }

    /// A request has ended, or was let go of.
    func finish() {
        state.withLockedValue { $0.open -= 1 }
    }

    /// Takes no requests any more and rings no more; gives out those that the thread has never seen.
    func close() -> [TokenTicket] {
        state.withLockedValue { state in
            state.bell = nil
            defer { (state.new, state.cancelled) = ([], []) }
            return state.new
        }
    }
}

/// One token request: what its owner holds, and the only way to tell the owner how it ended. As ``DownloadTicket``.
final class TokenTicket: DownloadHandle {
    let id: UInt64
    let request: TokenRequest
    let deadline: NIODeadline
    private let desk: TokenDesk
    private let onEnd: NIOLockedValueBox<(@Sendable (Result<TokenGrant, TokenFailure>) -> Void)?>

    fileprivate init(
        id: UInt64, request: TokenRequest, deadline: NIODeadline, desk: TokenDesk,
        onEnd: @escaping @Sendable (Result<TokenGrant, TokenFailure>) -> Void
    ) {
        self.id = id
        self.request = request
        self.deadline = deadline
        self.desk = desk
        self.onEnd = NIOLockedValueBox(onEnd)
    }

    func cancel() {
        guard onEnd.withLockedValue({ $0.take() }) != nil else { return }
        desk.cancel(self)
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
        try tokenDesk.start(request, at: .now(), onEnd: onEnd)
    }
}
