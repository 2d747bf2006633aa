import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore
import NIOHTTP1
@_spi(Wire) import Thumbcache

/// The latest metrics and recent samples, and the responses made from them.
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

    /// Takes a sample. Called at fixed intervals: if the previous scrape is still pending, this sample is missing.
    @discardableResult
    func sample() -> EventLoopFuture<Void>? {
        let isFree = state.withLockedValue { state in
            if state.isSampling { state.history.append(nil) }
            defer { state.isSampling = true }
            return !state.isSampling
        }
        guard isFree else { return nil }
        return scraper.scrape().map { self.record($0) }
    }

    private func record(_ scrape: Scrape) {
        let before = state.withLockedValue { state in
            defer { state.latest = scrape }
            state.isSampling = false
            state.history.append(scrape.figures.map { Sample($0.metrics, at: scrape.moment) })
            return state.latest
        }
        switch scrape.outcome {
        case .success where before == nil || before?.failure != nil: log.notice("reading metrics")
        case .failure(let failure) where before?.failure != failure:
            log.warning("no metrics", metadata: ["reason": "\(failure.reason)"])
        default: break
        }
    }

    func respond(to route: FiguresRoute) -> HTTPConnection.Responder {
        switch route {
        case .refused(let refusal): .now(refusal.response, closes: refusal.closes)
        case .page: .now(page(), closes: false)
        case .metrics:
            .later(
                scraper.scrape().map { Self.metrics($0.exposition) }, late: { Self.metrics(Scrape.down) }, cancel: {})
        }
    }

    private static func metrics(_ text: ByteBuffer) -> Response {
        Response(.ok, type: "text/plain; version=0.0.4; charset=utf-8", text)
    }

    private func page() -> Response {
        let state = state.withLockedValue { $0 }
        // The policy allows the page's own style only, so text of the daemon cannot add one.
        var random = SystemRandomNumberGenerator()
        // A fixed length keeps Content-Length equal for GET and HEAD.
        let nonce = Hex.text((0..<16).map { _ in UInt8.random(in: 0...255, using: &random) })
        let page = StatusPage(latest: state.latest, history: state.history, now: now())
        var response = Response(.ok, type: "text/html; charset=utf-8", ByteBuffer(string: page.html(nonce: nonce)))
        let policy = "\(Response.strictestPolicy); style-src 'nonce-\(nonce)'"
        response.fields = [("Content-Security-Policy", policy)]
        return response
    }
}

extension Scrape {
    var figures: Figures? { if case .success(let figures) = outcome { figures } else { nil } }
    var failure: Failure? { if case .failure(let failure) = outcome { failure } else { nil } }
}
