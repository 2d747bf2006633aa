import NIOCore
import NIOHTTP1

/// Answers requests for images with replies of the daemon. It keeps no image: each request asks the daemon, so that a
/// logout applies to the next response.
final class ImageService: Sendable {
    private let rules: ImageRules
    private let loop: any EventLoop
    private let executor: LoopExecutor
    private let transfers: ImageTransfers
    private let wallClock: @Sendable () -> Int64
    private let lookUp: @Sendable (ImageRequest) async -> ImageOutcome

    /// - Parameters:
    ///   - wallClock: seconds since 1970.
    ///   - lookUp: must return within the time of a response.
    init(
        rules: ImageRules, loop: any EventLoop, transfers: ImageTransfers, wallClock: @escaping @Sendable () -> Int64,
        lookUp: @escaping @Sendable (ImageRequest) async -> ImageOutcome
    ) {
        (self.rules, self.loop, self.transfers) = (rules, loop, transfers)
        executor = LoopExecutor(loop: loop)
        (self.wallClock, self.lookUp) = (wallClock, lookUp)
    }

    func respond(to head: HTTPRequestHead) -> HTTPConnection.Responder {
        switch rules.route(head, now: wallClock()) {
        case .refused(let refusal): return .now(refusal.response, closes: refusal.closes)
        case .answered(let response): return .now(response, closes: false)
        case .image(let request):
            let promise = loop.makePromise(of: Response.self)
            let transfer = transfers.begin(request.user, request.profile)
            let task = Task(executorPreference: executor) {
                promise.succeed(self.response(to: request, await self.lookUp(request), transfer))
            }
            return .later(
                promise.futureResult, late: { self.rules.response(to: request, .failure(.timeout)) },
                cancel: { task.cancel() })
        }
    }

    private func response(
        to request: ImageRequest, _ outcome: ImageOutcome, _ transfer: ImageTransfers.Transfer
    ) -> Response {
        // The daemon may have replied before a logout or purge whose event arrived first.
        var response = rules.response(to: request, transfer.revocation ?? outcome)
        if response.status != .ok { return response }
        guard transfer.reserve(response.body.readableBytes) else {
            return rules.response(to: request, .failure(.busy))
        }
        response.transfer = transfer
        return response
    }
}
