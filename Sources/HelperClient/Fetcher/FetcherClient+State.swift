import CacheCore
import HelperProtocol
import LinuxSupport
import NIOCore
import Origins

extension FetcherClient {
    struct State {
        var settings: FetcherSettings
        var isEnded = false
        /// The connection to the running fetcher.
        var connection: NIOLoopBound<FetcherConnection>?
        var outgoing = ByteBuffer()
        /// Whether the thread has been woken to send them.
        var isWoken = false
        /// Origins as the fetcher knows them, by name.
        private var origins: [String: Origin] = [:]

        private(set) var pending: [UInt64: PendingRequest] = [:]
        private(set) var downloads = 0
        private var perAccount: [UInt32: Int] = [:]
        private var lastID: UInt64 = 0

        /// Whether the fetcher has answered no ping yet.
        private var isStarting = false
        /// The number of the ping that has not been answered. It is random, so that the fetcher cannot answer without
        /// having read everything that was sent before.
        private var pendingPing: UInt64?

        private var current = FetcherStatistics()
        /// Counters of earlier fetchers.
        private var earlier: [String: FetcherStatistics.OriginFigures] = [:]
        /// Callers that wait for the statistics request in flight, and those that wait for the next one. The reply in
        /// flight may be older than the call of the latter.
        private var readers: (current: [@Sendable () -> Void], next: [@Sendable () -> Void]) = ([], [])
        /// Whether a ping was answered after the statistics request in flight. The fetcher replies in order, so
        /// answering a second one would mean that it ignores the request.
        private var hasAnsweredPingSince = false

        init(settings: FetcherSettings) { self.settings = settings }
    }
}

extension FetcherClient.State {
    mutating func began(_ connection: NIOLoopBound<FetcherConnection>) {
        self.connection = connection
        isStarting = true
    }

    /// Forgets the fetcher, but not the pending requests: ``removeAll()``.
    mutating func disconnected() {
        connection = nil
        outgoing.wipeReadableBytesOfAll()
        (outgoing, origins, pendingPing) = (ByteBuffer(), [:], nil)
        (isStarting, hasAnsweredPingSince) = (false, false)
        var all = FetcherStatistics()
        all.count(earlier)
        all.count(current.origins)
        (earlier, current) = (all.origins, FetcherStatistics())
    }

    /// Registers a request and returns the number that the reply will have.
    /// - Throws: if the account has too many requests, or no fetcher runs.
    mutating func register(
        _ next: FetcherClient.PendingRequest, cannotStart: Bool
    ) throws(FetchFailure) -> UInt64 {
        if isEnded { throw .shuttingDown }
        guard connection != nil else {
            throw .origin(
                cannotStart
                    ? "the fetcher process cannot be started again; restart thumbcached"
                    : "the fetcher process is being restarted; try again later")
        }
        // The fetcher accepts as many of each kind for an account, but is not trusted to count.
        let most = 2 * (settings.downloadsPerAccount + settings.queuePerAccount)
        guard perAccount[next.account, default: 0] < most else {
            throw .busy(
                "twice limits.downloads-per-uid + limits.queue-per-uid: \(most) downloads and token requests of this "
                    + "account are in flight; try again later")
        }
        lastID += 1
        pending[lastID] = next
        perAccount[next.account, default: 0] += 1
        if next.isDownload { downloads += 1 }
        return lastID
    }

    /// Whether the fetcher has to send something.
    var isReplyPending: Bool { isStarting || !pending.isEmpty || !readers.current.isEmpty }

    mutating func remove(_ id: UInt64) -> FetcherClient.PendingRequest? {
        guard let removed = pending.removeValue(forKey: id) else { return nil }
        let rest = perAccount[removed.account, default: 1] - 1
        perAccount[removed.account] = rest == 0 ? nil : rest
        if removed.isDownload { downloads -= 1 }
        return removed
    }

    mutating func removeAll() -> ([UInt64: FetcherClient.PendingRequest], [@Sendable () -> Void]) {
        defer { (pending, perAccount, downloads, readers) = ([:], [:], 0, ([], [])) }
        return (pending, readers.current + readers.next)
    }

    /// Queues a message, unless no fetcher runs. Returns whether the thread has to be woken.
    mutating func enqueue(_ request: FetcherRequest) -> Bool {
        guard connection != nil else { return false }
        request.write(to: &outgoing)
        defer { isWoken = true }
        return !isWoken
    }

    /// Sends an origin to the fetcher unless it knows it already.
    mutating func sendIfChanged(_ origin: Origin) -> Bool {
        guard origins[origin.name] != origin else { return false }
        origins[origin.name] = origin
        return enqueue(.origin(name: origin.name, settings: origin.encodedSettings))
    }

    /// Queues a ping. Returns whether the thread has to be woken; nil if a ping is pending already.
    mutating func requestPong() -> Bool? {
        guard pendingPing == nil else { return nil }
        let number = UInt64.random(in: 0 ... .max)
        pendingPing = number
        return enqueue(.ping(number))
    }

    var isPongPending: Bool { pendingPing != nil }

    /// - Returns: whether this is the fetcher's first pong; nil if it is invalid: of another number, or if statistics
    ///   are missing, which were requested before an earlier ping.
    mutating func acceptPong(_ number: UInt64) -> Bool? {
        guard pendingPing == number, !hasAnsweredPingSince else { return nil }
        pendingPing = nil
        hasAnsweredPingSince = !readers.current.isEmpty
        defer { isStarting = false }
        return isStarting
    }

    var statistics: FetcherStatistics {
        var all = current
        all.count(earlier)
        return all
    }

    /// Calls `onEnd` when the statistics have arrived. Returns whether the thread has to be woken.
    mutating func requestStatistics(_ onEnd: @escaping @Sendable () -> Void) -> Bool {
        readers.next.append(onEnd)
        return sendStatisticsRequest()
    }

    private mutating func sendStatisticsRequest() -> Bool {
        guard readers.current.isEmpty, !readers.next.isEmpty else { return false }
        readers = (readers.next, [])
        return enqueue(.statistics(0))
    }

    /// - Returns: the callers that waited, and whether the thread has to be woken to send the next request; nil if no
    ///   statistics were requested.
    mutating func acceptStatistics(_ statistics: FetcherStatistics) -> ([@Sendable () -> Void], Bool)? {
        guard !readers.current.isEmpty else { return nil }
        current = statistics
        // Origins that the fetcher invents would be kept forever.
        current.origins = statistics.origins.filter { origins[$0.key] != nil }
        let answered = readers.current
        readers.current = []
        hasAnsweredPingSince = false
        return (answered, sendStatisticsRequest())
    }
}

extension FetcherClient {
    /// A request in flight.
    enum PendingRequest: Sendable {
        case download(
            account: UInt32, framing: ReplyFraming, isConditional: Bool, @Sendable (DownloadOutcome) -> Void)
        case token(account: UInt32, @Sendable (Result<TokenGrant, FetchFailure>) -> Void)
        case check(account: UInt32, @Sendable (FetchRefusal?) -> Void)

        var account: UInt32 {
            switch self {
            case .download(let account, _, _, _), .token(let account, _), .check(let account, _): account
            }
        }

        var isDownload: Bool { if case .download = self { true } else { false } }

        func fail(_ failure: FetchFailure) {
            switch self {
            case .download(_, _, _, let onEnd): onEnd(.failed(failure))
            case .token(_, let onEnd): onEnd(.failure(failure))
            case .check(_, let onEnd): onEnd(FetchRefusal(failure))
            }
        }

        /// Calls `onEnd` with the fetcher's report.
        /// - Throws: if the report does not fit the request. `onEnd` is called with a failure then.
        func end(
            _ report: FetcherReport, _ body: inout ImageBytes.Builder?, _ settings: FetcherSettings
        ) throws(MessageError) {
            switch (self, report) {
            case (.download(_, let framing, _, let onEnd), .image(_, let headers, let redirectedTo)):
                onEnd(Self.image(&body, framing, headers, redirectedTo, settings))
            case (.download(_, _, _, let onEnd), .missing(_, let headers)): onEnd(.missing(headers))
            case (.download(_, _, _, let onEnd), .unusable(_, let headers, let failure)):
                onEnd(.unusable(failure, headers))
            case (.download(_, _, true, let onEnd), .notModified(_, let headers)): onEnd(.notModified(headers))
            case (.download(_, _, _, let onEnd), .failed(_, let failure)) where failure.refreshToken == nil:
                onEnd(.failed(failure))
            case (.token(_, let onEnd), .token(_, let grant)): onEnd(Self.checked(.success(grant), settings))
            case (.token(_, let onEnd), .failed(_, let failure)): onEnd(Self.checked(.failure(failure), settings))
            case (.check(_, let onEnd), .checked(_, let refusal)): onEnd(refusal)
            default:
                fail(.origin("the fetcher process sent a report that does not fit the request"))
                throw MessageError("a report that does not fit the request")
            }
        }

        /// Checks the image again, because the fetcher is not trusted. Frames it in place; a second reference to the
        /// body would cause a copy.
        private static func image(
            _ body: inout ImageBytes.Builder?, _ framing: ReplyFraming, _ headers: ResponseHeaders,
            _ redirectedTo: String?, _ settings: FetcherSettings
        ) -> DownloadOutcome {
            var empty = ImageBytes.Builder()
            let bytes = body?.finish(framing) ?? empty.finish(framing)
            guard bytes.count <= settings.maximumImageBytes else {
                return .unusable(.tooLarge("the image has more than \(settings.maximumImageBytes) bytes"), headers)
            }
            do {
                let shape = try ImageSniffer.sniff(bytes.image, maximumDimension: settings.maximumDimension)
                return .image(DownloadedImage(bytes: bytes, shape: shape, headers: headers, redirectedTo: redirectedTo))
            } catch {
                return .unusable(.badImage("from the origin: \(error.reason)"), headers)
            }
        }

        /// Checks tokens again, because they are stored and the fetcher is not trusted.
        private static func checked(
            _ result: Result<TokenGrant, FetchFailure>, _ settings: FetcherSettings
        ) -> Result<TokenGrant, FetchFailure> {
            func isValid(_ token: Secret?, _ isToken: (UnsafeRawBufferPointer) -> Bool) -> Bool {
                guard let token else { return true }
                return (1...max(1, settings.maximumTokenBytes)).contains(token.count) && token.withBytes(isToken)
            }
            let areValid =
                switch result {
                case .success(let grant):
                    isValid(grant.accessToken, TokenText.isBearer) && isValid(grant.refreshToken, TokenText.isVisible)
                case .failure(let failure): isValid(failure.refreshToken, TokenText.isVisible)
                }
            return areValid ? result : .failure(.origin("the fetcher process sent an invalid token"))
        }
    }
}
