import CacheCore
import ImageOptions
import NIOConcurrencyHelpers
import NIOCore

/// A renderer whose results are labeled with source and size, such as `bob@64`. Ends requests at once or by the test.
public final class FakeRenderer: ImageRendering {
    /// A rendering that was requested.
    public struct Request: Sendable {
        public let source: String
        public let options: RenditionOptions
        public let uid: UInt32
        fileprivate let isWanted: @Sendable () -> Bool
        fileprivate let onEnd: @Sendable (Result<ByteBuffer, RenditionFailure>) -> Void

        /// Ends the request with an image, even if it is no longer wanted.
        public func finish() {
            onEnd(.success(SampleImage.png("\(source)@\(options.size.pixels)", width: 8, height: 8)))
        }

        /// Marks the rendering as begun. Returns whether its result is still wanted.
        public func begin() -> Bool { isWanted() }

        /// Renders if the result is still wanted.
        public func render() {
            if begin() { finish() } else { onEnd(.failure(.unavailable)) }
        }

        public func fail(_ failure: RenditionFailure) { onEnd(.failure(failure)) }
    }

    private struct State {
        var requests: [Request] = []
        var isHeld = false
        var failure: RenditionFailure?
        var forgotten: [UInt32] = []
        var onRequest: (@Sendable (Request) -> Void)?
    }

    private let state = NIOLockedValueBox(State())

    public init() {}

    /// All requests, in order.
    public var requests: [Request] { state.withLockedValue { $0.requests } }
    public var forgotten: [UInt32] { state.withLockedValue { $0.forgotten } }

    /// Whether requests are ended by the test.
    public var isHeld: Bool {
        get { state.withLockedValue { $0.isHeld } }
        set { state.withLockedValue { $0.isHeld = newValue } }
    }

    /// While set, every request fails with it.
    public var failure: RenditionFailure? {
        get { state.withLockedValue { $0.failure } }
        set { state.withLockedValue { $0.failure = newValue } }
    }

    /// While set, gets each request, which it must end. The request is then not in ``requests``.
    public var onRequest: (@Sendable (Request) -> Void)? {
        get { state.withLockedValue { $0.onRequest } }
        set { state.withLockedValue { $0.onRequest = newValue } }
    }

    public func render(
        _ source: ByteBuffer, _ options: RenditionOptions, for uid: UInt32, isWanted: @escaping @Sendable () -> Bool,
        onEnd: @escaping @Sendable (Result<ByteBuffer, RenditionFailure>) -> Void
    ) {
        let request = Request(
            source: SampleImage.label(of: source), options: options, uid: uid, isWanted: isWanted, onEnd: onEnd)
        if let onRequest { return onRequest(request) }
        let (isHeld, failure) = state.withLockedValue { state in
            state.requests.append(request)
            return (state.isHeld, state.failure)
        }
        if let failure { return request.fail(failure) }
        if !isHeld { request.render() }
    }

    public func forget(_ uid: UInt32) {
        state.withLockedValue { if $0.onRequest == nil { $0.forgotten.append(uid) } }
    }
}
