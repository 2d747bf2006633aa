import Logging
import Thumbcache

/// Requests images from the daemon.
struct DaemonImages: Sendable {
    let client: ThumbcacheClient
    /// For images in the cache, which must not wait for downloads.
    let hits: ThumbcacheClient
    /// How long the daemon may wait for the origin.
    let wait: Duration
    let log: Logger

    func lookUp(_ request: ImageRequest) async -> ImageOutcome {
        do throws(ThumbcacheError) {
            return try await reply(to: request)
        } catch {
            let outcome = ImageOutcome(error)
            if outcome != .missing && error != .cancelled {
                log.warning("no reply with an image", metadata: ["reason": "\(error)"])
            }
            return outcome
        }
    }

    private func reply(to request: ImageRequest) async throws(ThumbcacheError) -> ImageOutcome {
        if let outcome = try await cached(request) { return outcome }
        let (user, profile, size) = (request.user, request.profile, ImageSize(request.size))
        guard let digest = request.tags.first else {
            let image = try await client.get(user, profile, size: size, wait: wait)
            return image.map { .image($0) } ?? .missing
        }
        switch try await client.get(user, profile, unless: digest, size: size, wait: wait) {
        case .none: return .missing
        case .image(let image): return .image(image)
        case .unchanged:
            // UNCHANGED does not tell how long the image stays fresh.
            guard request.policy.longest > 0 else { return .unchanged(digest: digest, nil) }
            let status = try await client.stat(user, profile, size: size)
            return .unchanged(digest: digest, status?.digest == digest ? status : nil)
        }
    }

    /// Returns nil if the cache has no fresh image.
    private func cached(_ request: ImageRequest) async throws(ThumbcacheError) -> ImageOutcome? {
        let (user, profile, size) = (request.user, request.profile, ImageSize(request.size))
        let image: ThumbcacheImage?
        if let digest = request.tags.first {
            switch try await hits.get(user, profile, unless: digest, size: size, policy: .cachedOnly) {
            case .none: image = nil
            case .image(let other): image = other
            case .unchanged:
                let status = try await client.stat(user, profile, size: size)
                guard let status, status.digest == digest, status.state == .fresh else { return nil }
                return .unchanged(digest: digest, status)
            }
        } else {
            image = try await hits.get(user, profile, size: size, policy: .cachedOnly)
        }
        return image.flatMap { $0.status.state == .fresh ? .image($0) : nil }
    }
}
