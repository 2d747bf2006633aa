import NIOConcurrencyHelpers
import NIOCore
@_spi(Wire) import Thumbcache

/// Requests METRICS from the daemon. Concurrent scrapes share one request.
///
/// A request takes as long as the daemon's fetcher is stuck, and occupies a connection and a task of the daemon. With
/// this limit, many scrapes cost the daemon no more than one.
final class Scraper: Sendable {
    private let loop: any EventLoop
    private let request: @Sendable () async -> Scrape
    private let pending = NIOLockedValueBox<EventLoopPromise<Scrape>?>(nil)

    /// - Parameter request: must return eventually.
    init(loop: any EventLoop, request: @escaping @Sendable () async -> Scrape) {
        (self.loop, self.request) = (loop, request)
    }

    func scrape() -> EventLoopFuture<Scrape> {
        let (promise, isFirst) = pending.withLockedValue { pending in
            if let pending { return (pending, false) }
            let promise = loop.makePromise(of: Scrape.self)
            pending = promise
            return (promise, true)
        }
        if isFirst {
            Task {
                let scrape = await request()
                pending.withLockedValue { $0 = nil }
                promise.succeed(scrape)
            }
        }
        return promise.futureResult
    }
}

extension Scraper {
    convenience init(loop: any EventLoop, client: ThumbcacheClient, socket: String) {
        self.init(loop: loop) {
            let outcome: Result<Scrape.Figures, Scrape.Failure>
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
