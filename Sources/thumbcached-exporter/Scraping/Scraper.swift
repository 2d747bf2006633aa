import NIOConcurrencyHelpers
import NIOCore
@_spi(Wire) import Thumbcache

/// Asks the daemon for its figures: one question at a time. Whoever asks while one is on its way has its answer.
///
/// A question can take the daemon as long as its fetcher is stuck, and each is a connection's place and a task there;
/// however many scrape, it has one.
final class Scraper: Sendable {
    private let loop: any EventLoop
    private let ask: @Sendable () async -> Scrape
    private let waiting = NIOLockedValueBox<EventLoopPromise<Scrape>?>(nil)

    /// - Parameter ask: has to end, sooner or later.
    init(loop: any EventLoop, ask: @escaping @Sendable () async -> Scrape) {
        (self.loop, self.ask) = (loop, ask)
    }

    func scrape() -> EventLoopFuture<Scrape> {
        let (promise, isFirst) = waiting.withLockedValue { waiting in
            if let waiting { return (waiting, false) }
            let promise = loop.makePromise(of: Scrape.self)
            waiting = promise
            return (promise, true)
        }
        if isFirst {
            Task {
                let scrape = await ask()
                waiting.withLockedValue { $0 = nil }
                promise.succeed(scrape)
            }
        }
        return promise.futureResult
    }
}

extension Scraper {
    /// One that asks by a client.
    convenience init(loop: any EventLoop, client: ThumbcacheClient, socket: String) {
        self.init(loop: loop) {
            let outcome: Result<Scrape.Figures, Scrape.Silence>
            do throws(ThumbcacheError) {
                let text = try await client.metrics()
                outcome = .success(.init(text: text, metrics: try ThumbcacheMetrics(text)))
            } catch {
                outcome = .failure(.init(error, socket: socket))
            }
            return Scrape(moment: .now(), outcome: outcome)
        }
    }
}
