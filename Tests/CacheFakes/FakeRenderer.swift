import CacheCore
import NIOConcurrencyHelpers
import NIOCore

/// Makes pictures of which only the label says what they were made of: `bob@64`. At once, or when a test says so.
public final class FakeRenderer: ImageRendering {
    /// A picture that was asked for.
    public struct Request: Sendable {
        public let source: String
        public let wish: RenditionOptions
        public let uid: UInt32
        fileprivate let isWanted: @Sendable () -> Bool
        fileprivate let onEnd: @Sendable (Result<ByteBuffer, RenditionFailure>) -> Void

        /// Makes it now, whether or not anybody still wants it.
        public func finish() {
            onEnd(.success(SampleImage.png("\(source)@\(wish.side)", width: 8, height: 8)))
        }

        /// Whether somebody wants it still; then it is begun.
        public func take() -> Bool { isWanted() }

        /// As a renderer that has come to it.
        public func begin() {
            if take() { finish() } else { onEnd(.failure(.unavailable)) }
        }

        public func fail(_ failure: RenditionFailure) { onEnd(.failure(failure)) }
    }

    private struct State {
        var requests: [Request] = []
        var isHeld = false
        var failure: RenditionFailure?
        var forgotten: [UInt32] = []
    }

    private let state = NIOLockedValueBox(State())

    public init() {}

    /// All that was asked for, in that order.
    public var requests: [Request] { state.withLockedValue { $0.requests } }
    public var forgotten: [UInt32] { state.withLockedValue { $0.forgotten } }

    /// Whether a test ends requests by hand.
    public var isHeld: Bool {
        get { state.withLockedValue { $0.isHeld } }
        set { state.withLockedValue { $0.isHeld = newValue } }
    }

    /// While set, every request fails so.
    public var failure: RenditionFailure? {
        get { state.withLockedValue { $0.failure } }
        set { state.withLockedValue { $0.failure = newValue } }
    }

    public func render(
        _ source: ByteBuffer, _ wish: RenditionOptions, for uid: UInt32, isWanted: @escaping @Sendable () -> Bool,
        onEnd: @escaping @Sendable (Result<ByteBuffer, RenditionFailure>) -> Void
    ) {
        let request = Request(
            source: SampleImage.label(of: source), wish: wish, uid: uid, isWanted: isWanted, onEnd: onEnd)
        let (isHeld, failure) = state.withLockedValue { state in
            state.requests.append(request)
            return (state.isHeld, state.failure)
        }
        if let failure { return request.fail(failure) }
        if !isHeld { request.begin() }
    }

    public func forget(_ uid: UInt32) { state.withLockedValue { $0.forgotten.append(uid) } }
}
