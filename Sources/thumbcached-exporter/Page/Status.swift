import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore
import NIOHTTP1
@_spi(Wire) import Thumbcache

/// What the daemon said last and in the last minutes, and the answers that are made of it.
final class Status: Sendable {
    struct State {
        var history = History()
        var latest: Scrape?
        var isSampling = false
    }

    private let scraper: Scraper
    private let now: @Sendable () -> NIODeadline
    private let log: Logger
    private let state = NIOLockedValueBox(State())

    init(scraper: Scraper, now: @escaping @Sendable () -> NIODeadline = { .now() }, log: Logger) {
        (self.scraper, self.now, self.log) = (scraper, now, log)
    }

    /// Asks the daemon for the next sample. Called at even pauses; where the answer to the one before is still waited
    /// for, the daemon has been silent for a pause.
    @discardableResult
    func sample() -> EventLoopFuture<Void>? {
        let isFree = state.withLockedValue { state in
            if state.isSampling { state.history.append(nil) }
            defer { state.isSampling = true }
            return !state.isSampling
        }
        guard isFree else { return nil }
        return scraper.scrape().map { self.take($0) }
    }

    private func take(_ scrape: Scrape) {
        let before = state.withLockedValue { state in
            defer { state.latest = scrape }
            state.isSampling = false
            state.history.append(scrape.figures.map { Sample($0.metrics, at: scrape.moment) })
            return state.latest
        }
        switch scrape.outcome {
        case .success where before == nil || before?.silence != nil: log.notice("the daemon answers")
        case .failure(let silence) where before?.silence != silence:
            log.warning("there are no figures", metadata: ["reason": "\(silence.reason)"])
        default: break
        }
    }

    /// The answer to a request.
    func respond(to route: Route) -> HTTPConnection.Responder {
        switch route {
        case .refused(let answer, let closes): .now(answer, closes: closes)
        case .page: .now(page(), closes: false)
        case .metrics: .later(scraper.scrape().map { Self.metrics($0.exposition) }, late: Self.metrics(Scrape.down))
        }
    }

    private static func metrics(_ text: ByteBuffer) -> Answer {
        Answer(.ok, type: "text/plain; version=0.0.4; charset=utf-8", text)
    }

    private func page() -> Answer {
        let state = state.withLockedValue { $0 }
        // The page's own style is the one that may be used, and nothing that the daemon's words could become.
        var random = SystemRandomNumberGenerator()
        // Of the same length each time, as HEAD promises of the page.
        let nonce = Hex.text((0..<16).map { _ in UInt8.random(in: 0...255, using: &random) })
        let page = StatusPage(latest: state.latest, history: state.history, now: now())
        var answer = Answer(.ok, type: "text/html; charset=utf-8", ByteBuffer(string: page.html(nonce: nonce)))
        let policy = "\(Answer.strictestPolicy); style-src 'nonce-\(nonce)'"
        answer.fields = [("Content-Security-Policy", policy)]
        return answer
    }
}

extension Scrape {
    var figures: Figures? { if case .success(let figures) = outcome { figures } else { nil } }
    var silence: Silence? { if case .failure(let silence) = outcome { silence } else { nil } }
}
