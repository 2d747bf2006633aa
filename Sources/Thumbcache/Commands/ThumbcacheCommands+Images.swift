import NIOCore
import ThumbcacheProtocol

/// Whether a GET may send a request to the origin.
public enum DownloadPolicy: Sendable, Hashable {
    /// Downloads a missing or stale image and waits for it.
    case download
    /// Returns the cached image, fresh or stale, if any. Does not download.
    case cachedOnly
    /// Returns the cached image immediately; a missing or stale image is refreshed in the background.
    case inBackground
}

extension ThumbcacheCommands {
    /// Returns an image from the cache, or else downloads it from the user's origin.
    ///
    /// A GET that may download, or has a size, uses a connection of its own. Cancelling the task or a timeout closes it,
    /// and the daemon then cancels the download if no other request waits for it.
    ///
    /// - Parameters:
    ///   - size: in pixels, 1 to 4096. If the origin has only one size, the daemon resizes its image.
    ///   - url: the URL to download from; must match an `allow` entry of the origin in the daemon's configuration.
    ///   - wait: how long the daemon may wait for the download, up to 10 minutes. Default: the origin's timeout.
    /// - Returns: the image; nil if neither the cache nor the origin has one.
    public func get(
        _ user: ThumbcacheID, _ profile: ThumbcacheID, size: ImageSize? = nil, url: String? = nil,
        wait: Duration? = nil,
        policy: DownloadPolicy = .download
    ) async throws(ThumbcacheError) -> ThumbcacheImage? {
        let request = try ThumbcacheRequest.get(user, profile, size, url, wait, policy)
        let value = try await reply(to: request).value
        return value.isNull ? nil : try ThumbcacheImage(value)
    }

    /// Returns an image, unless the caller already has it.
    /// - Parameter digest: the ``ImageStatus/digest`` of the caller's image.
    public func get(
        _ user: ThumbcacheID, _ profile: ThumbcacheID, unless digest: String, size: ImageSize? = nil,
        url: String? = nil,
        wait: Duration? = nil, policy: DownloadPolicy = .download
    ) async throws(ThumbcacheError) -> ImageLookup {
        var request = try ThumbcacheRequest.get(user, profile, size, url, wait, policy)
        request.append("IFNOT", digest)
        let value = try await reply(to: request).value
        if value.isNull { return .none }
        if case .simpleString("UNCHANGED") = value { return .unchanged }
        return .image(try ThumbcacheImage(value))
    }

    /// Returns several images, which are downloaded in parallel. Otherwise as ``get(_:_:size:url:wait:policy:)``.
    /// - Returns: for each profile, in order, the file, nil if there is none, or an error.
    public func mget(
        _ user: ThumbcacheID, _ profiles: [ThumbcacheID], size: ImageSize? = nil, wait: Duration? = nil,
        policy: DownloadPolicy = .download
    ) async throws(ThumbcacheError) -> [Result<ByteBuffer?, ThumbcacheError>] {
        if profiles.isEmpty { return [] }
        var request = ThumbcacheRequest("MGET", try user.asUser)
        request.append(counted: profiles)
        request.append(size)
        request.append(wait, policy, size)
        let value = try await reply(to: request).value
        guard let elements = value.elements, elements.count == profiles.count else {
            throw .protocolViolation("the reply to MGET does not have \(profiles.count) elements")
        }
        return elements.map { element in
            if let error = element.serverError { return .failure(error) }
            if case .null = element { return .success(nil) }
            guard let bytes = element.bytes else {
                return .failure(.protocolViolation("an element of the reply to MGET is not an image"))
            }
            return .success(bytes)
        }
    }

    /// Stores an image.
    /// - Parameters:
    ///   - image: PNG, JPEG, GIF, WebP or AVIF, detected from the content.
    ///   - size: the size to store it under, in pixels, 1 to 4096.
    ///   - timeToLive: time until the image is stale, in whole seconds. Without it, the image stays fresh until it is
    ///     purged, evicted or replaced.
    public func put(
        _ user: ThumbcacheID, _ profile: ThumbcacheID, _ image: ByteBuffer, size: Int? = nil,
        timeToLive: Duration? = nil
    ) async throws(ThumbcacheError) {
        var request = ThumbcacheRequest("PUT", try user.asUser, profile)
        request.append(image)
        request.append("SIZE", size)
        request.append("TTL", timeToLive?.components.seconds)
        request.change = .updated(user, profile: profile)
        try await reply(to: request).value.expectingOK()
    }

    /// Downloads missing and stale images in the background. ``ThumbcacheEvent/update(user:profile:epoch:)`` reports
    /// each change.
    /// - Returns: the number of queued downloads.
    public func warm(
        _ user: ThumbcacheID, _ profiles: [ThumbcacheID], size: ImageSize? = nil
    ) async throws(ThumbcacheError) -> Int {
        if profiles.isEmpty { return 0 }
        var request = ThumbcacheRequest("WARM", try user.asUser)
        request.append(counted: profiles)
        request.append(size)
        let value = try await reply(to: request).value
        guard let number = value.number else { throw .protocolViolation("the reply to WARM is not a number") }
        return number
    }

    /// Returns the description of a cached image; nil if none is cached. Does not download.
    public func stat(
        _ user: ThumbcacheID, _ profile: ThumbcacheID, size: ImageSize? = nil
    ) async throws(ThumbcacheError) -> ImageStatus? {
        var request = ThumbcacheRequest("STAT", try user.asUser, profile)
        request.append(size)
        let value = try await reply(to: request).value
        return value.isNull ? nil : try ImageStatus(value)
    }

    /// Describes the result of ``get(_:_:size:url:wait:policy:)`` without performing it. Does not throw if the
    /// user is not logged in.
    public func explain(
        _ user: ThumbcacheID, _ profile: ThumbcacheID, size: ImageSize? = nil
    ) async throws(ThumbcacheError) -> ImageExplanation {
        var request = ThumbcacheRequest("EXPLAIN", try user.asUser, profile)
        request.append(size)
        return try ImageExplanation(try await reply(to: request).value)
    }
}

extension ThumbcacheRequest {
    static func get(
        _ user: ThumbcacheID, _ profile: ThumbcacheID, _ size: ImageSize?, _ url: String?, _ wait: Duration?,
        _ policy: DownloadPolicy
    ) throws(ThumbcacheError) -> ThumbcacheRequest {
        var request = ThumbcacheRequest("GET", try user.asUser, profile)
        request.append(size)
        request.append("URL", url)
        request.append(wait, policy, size)
        request.append("META")
        return request
    }

    mutating func append(_ wait: Duration?, _ policy: DownloadPolicy, _ size: ImageSize?) {
        // With any policy, the daemon may have to render the size, and replies are in order.
        if size != nil { mayWait = true }
        switch policy {
        case .download: mayWait = true
        case .cachedOnly: append("CACHED")
        case .inBackground: append("NOWAIT")
        }
        append("WAIT", wait.map { TimeAmount($0).nanoseconds / 1_000_000 })
    }
}
