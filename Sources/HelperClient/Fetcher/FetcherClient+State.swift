import CacheCore
import HelperProtocol
import LinuxSupport
import NIOCore

extension FetcherClient {
    struct State {
        var settings: FetcherSettings
        var isEnded = false
        /// Whether the process that starts fetchers has ended: ``HelperStarter``.
        var cannotStart = false
        /// The fetcher that there is.
        var connection: NIOLoopBound<FetcherConnection>?
        /// What it has not been told yet, and whether the thread knows.
        var outgoing = ByteBuffer()
        var isCalled = false
        /// What it was told of origins, by their names.
        private var origins: [String: Origin] = [:]

        private(set) var expected: [UInt64: Expected] = [:]
        private(set) var downloads = 0
        private var ofUIDs: [UInt32: Int] = [:]
        private var lastID: UInt64 = 0
        /// The number by which it was asked for a sign of life that it has not given. Drawn: it cannot be given without
        /// having read all that was sent before.
        private(set) var owedSign: UInt64?

        private var figures = FetcherStatistics()
        /// Of the fetchers before it.
        private var counted: [String: FetcherStatistics.OriginFigures] = [:]
        /// Those who want figures, and those whom the answer on its way is for.
        var askers: [@Sendable () -> Void] = []
        private var asked: [@Sendable () -> Void] = []
        /// Whether it has answered a sign of life since it was asked for these: it answers in turn, or not at all.
        private var owesFigures = false

        /// How often it has ended soon after its start, in a row.
        private var losses = 0
        private var beganAt: NIODeadline?

        init(settings: FetcherSettings) { self.settings = settings }
    }
}

extension FetcherClient.State {
    /// A fetcher that lives for so long is no failure of its start.
    private static var soon: TimeAmount { .seconds(10) }
    private static var firstPause: Int64 { 100 }
    private static var longestPause: Int64 { 30_000 }

    mutating func began(_ connection: NIOLoopBound<FetcherConnection>, at now: NIODeadline) {
        self.connection = connection
        beganAt = now
    }

    /// It has ended, or could not be had.
    /// - Returns: when to start another: at once the first time. Nil where there is to be none.
    mutating func ended(at now: NIODeadline) -> TimeAmount? {
        connection = nil
        outgoing.wipeReadableBytesOfAll()
        (outgoing, origins, owedSign) = (ByteBuffer(), [:], nil)
        var all = FetcherStatistics()
        all.count(counted)
        all.count(figures.origins)
        (counted, figures) = (all.origins, FetcherStatistics())
        if isEnded { return nil }
        owesFigures = false
        let hasLived = beganAt.map { now - $0 >= Self.soon } ?? false
        beganAt = nil
        losses = hasLived ? 1 : losses + 1
        return losses == 1 ? .zero : .milliseconds(min(Self.longestPause, Self.firstPause << min(20, losses - 2)))
    }

    /// - Returns: the number that the answer will have.
    /// - Throws: when the uid has too many already, or nobody is there to answer.
    mutating func expect(_ next: FetcherClient.Expected) throws(TransferFailure) -> UInt64 {
        if isEnded { throw .shuttingDown }
        if cannotStart {
            throw .origin("the process that downloads has ended and cannot be started again: restart thumbcached")
        }
        guard connection != nil else {
            throw .origin("the process that downloads has ended and is started again: try again then")
        }
        // As many as the fetcher takes of a uid, of each kind: it is not believed to be able to count.
        let most = 2 * (settings.downloadsPerUID + settings.queuePerUID)
        guard ofUIDs[next.uid, default: 0] < most else {
            throw .busy("\(most) downloads and token requests of this uid are under way already: try again later")
        }
        lastID += 1
        expected[lastID] = next
        ofUIDs[next.uid, default: 0] += 1
        if next.isDownload { downloads += 1 }
        return lastID
    }

    /// Whether somebody waits for the fetcher.
    var owesAnswer: Bool { !expected.isEmpty || !asked.isEmpty }

    /// What was expected under that number; nil if nothing is any more.
    mutating func take(_ id: UInt64) -> FetcherClient.Expected? {
        guard let taken = expected.removeValue(forKey: id) else { return nil }
        let rest = ofUIDs[taken.uid, default: 1] - 1
        ofUIDs[taken.uid] = rest == 0 ? nil : rest
        if taken.isDownload { downloads -= 1 }
        return taken
    }

    mutating func takeAll() -> ([UInt64: FetcherClient.Expected], [@Sendable () -> Void]) {
        defer { (expected, ofUIDs, downloads, askers, asked) = ([:], [:], 0, [], []) }
        return (expected, asked + askers)
    }

    // MARK: What it is told

    /// - Returns: whether the thread is to be called.
    mutating func say(_ request: FetcherRequest) -> Bool {
        guard connection != nil else { return false }
        request.write(to: &outgoing)
        defer { isCalled = true }
        return !isCalled
    }

    /// Has the fetcher know an origin as it is now.
    mutating func introduce(_ origin: Origin) -> Bool {
        guard origins[origin.name] != origin else { return false }
        origins[origin.name] = origin
        return say(.origin(origin))
    }

    /// - Returns: whether the thread is to be called; nil where it owes a sign already.
    mutating func askForSign() -> Bool? {
        guard owedSign == nil else { return nil }
        let number = UInt64.random(in: 0 ... .max)
        owedSign = number
        return say(.isAlive(number))
    }

    var owesSign: Bool { owedSign != nil }

    /// - Returns: whether that is the sign that it was asked for. One that owes figures since before has given none.
    mutating func isAlive(_ number: UInt64) -> Bool {
        guard owedSign == number, !owesFigures else { return false }
        owedSign = nil
        owesFigures = !asked.isEmpty
        return true
    }

    // MARK: Figures

    var statistics: FetcherStatistics {
        var all = figures
        all.count(counted)
        return all
    }

    mutating func askForStatistics() -> Bool {
        guard asked.isEmpty, !askers.isEmpty else { return false }
        (asked, askers) = (askers, [])
        return say(.statistics(0))
    }

    /// - Returns: those who waited for it, and whether the thread is to be called for those who came meanwhile. Nil
    ///   where nobody has asked.
    mutating func learned(_ statistics: FetcherStatistics) -> ([@Sendable () -> Void], Bool)? {
        guard !asked.isEmpty else { return nil }
        figures = statistics
        // Names of its own making would be kept for ever.
        figures.origins = statistics.origins.filter { origins[$0.key] != nil }
        let told = asked
        asked = []
        owesFigures = false
        return (told, askForStatistics())
    }
}

extension FetcherClient {
    /// What a fetcher was asked for, and who is told what came of it.
    enum Expected: Sendable {
        case download(
            uid: UInt32, framing: ReplyFraming, isConditional: Bool, @Sendable (DownloadOutcome) -> Void)
        case token(uid: UInt32, @Sendable (Result<TokenGrant, TransferFailure>) -> Void)

        var uid: UInt32 {
            switch self {
            case .download(let uid, _, _, _), .token(let uid, _): uid
            }
        }

        var isDownload: Bool { if case .download = self { true } else { false } }

        func fail(_ failure: TransferFailure) {
            switch self {
            case .download(_, _, _, let onEnd): onEnd(.failed(CacheFailure(failure)))
            case .token(_, let onEnd): onEnd(.failure(failure))
            }
        }

        /// Tells what the fetcher says came of it, as far as that can be.
        /// - Throws: where it cannot; then that is told as well.
        func end(
            _ report: FetcherReport, _ body: ImageBytes.Builder?, _ settings: FetcherSettings
        ) throws(MessageError) {
            switch (self, report) {
            case (.download(_, let framing, _, let onEnd), .image(_, let headers, let redirectedTo)):
                onEnd(Self.image(body ?? .init(), framing, headers, redirectedTo, settings))
            case (.download(_, _, _, let onEnd), .missing(_, let headers)): onEnd(.missing(headers))
            case (.download(_, _, _, let onEnd), .unusable(_, let headers, let failure)):
                onEnd(.unusable(failure, headers))
            case (.download(_, _, true, let onEnd), .notModified(_, let headers)): onEnd(.notModified(headers))
            case (.download(_, _, _, let onEnd), .failed(_, let failure)): onEnd(.failed(failure))
            case (.token(_, let onEnd), .token(_, let result)): onEnd(Self.judged(result, settings))
            default:
                fail(.origin("the process that downloads answered something else than it was asked"))
                throw MessageError("answers something else than was asked")
            }
        }

        /// A picture is what is one here, whatever the fetcher took it for.
        private static func image(
            _ body: ImageBytes.Builder, _ framing: ReplyFraming, _ headers: ResponseHeaders, _ redirectedTo: String?,
            _ settings: FetcherSettings
        ) -> DownloadOutcome {
            var body = body
            let bytes = body.finish(framing)
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

        /// Tokens are kept: they are what such may be, also if the fetcher did not look.
        private static func judged(
            _ result: Result<TokenGrant, TransferFailure>, _ settings: FetcherSettings
        ) -> Result<TokenGrant, TransferFailure> {
            func isFit(_ token: Secret?, _ isToken: (UnsafeRawBufferPointer) -> Bool) -> Bool {
                guard let token else { return true }
                return (1...max(1, settings.maximumTokenBytes)).contains(token.count) && token.withBytes(isToken)
            }
            let areFit =
                switch result {
                case .success(let grant):
                    isFit(grant.accessToken, TokenText.isBearer) && isFit(grant.refreshToken, TokenText.isVisible)
                case .failure(.unusable(_, let refreshToken)): isFit(refreshToken, TokenText.isVisible)
                case .failure: true
                }
            return areFit ? result : .failure(.origin("the process that downloads sent what is no token"))
        }
    }
}
