import NIOCore
import ThumbcacheProtocol

/// Whether a GET may ask the origin.
public enum DownloadPolicy: Sendable, Hashable {
    /// What is missing is downloaded, and waited for.
    case download
    /// What is held, fresh or stale, or nothing.
    case cachedOnly
    /// The same at once, and what is missing or stale is downloaded behind.
    case inBackground
}

extension ThumbcacheCommands {
    /// An image: from the cache, else downloaded from the user's origin. nil where there is none.
    ///
    /// A GET that may download has a connection for itself until it is answered. When its task is cancelled, or its
    /// time is over, that connection is closed: so the daemon learns that nobody waits any more, and ends the download
    /// if it was for nobody else.
    ///
    /// - Parameters:
    ///   - size: pixels, 1 to 4096. Where the origin has no sizes, the daemon makes the picture of the one it has.
    ///   - url: where to download it from; must be allowed by the daemon's configuration.
    ///   - wait: how long the daemon may wait for the download. Default: the origin's timeout.
    public func get(
        _ user: ThumbcacheID, _ profile: ThumbcacheID, size: PictureSize? = nil, url: String? = nil,
        wait: Duration? = nil,
        policy: DownloadPolicy = .download
    ) async throws(ThumbcacheError) -> ThumbcacheImage? {
        let request = try ThumbcacheRequest.get(user, profile, size, url, wait, policy)
        let value = try await reply(to: request).value
        return value.isNull ? nil : try ThumbcacheImage(value)
    }

    /// An image, unless it is the one that the caller has.
    /// - Parameter digest: of what the caller has, as in ``ImageStatus/digest``.
    public func get(
        _ user: ThumbcacheID, _ profile: ThumbcacheID, unless digest: String, size: PictureSize? = nil,
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

    /// Several images at once, downloaded side by side: for each profile the file, nil where there is none, or an
    /// error, in the order asked for. As ``get(_:_:size:url:wait:policy:)`` otherwise.
    public func mget(
        _ user: ThumbcacheID, _ profiles: [ThumbcacheID], size: PictureSize? = nil, wait: Duration? = nil,
        policy: DownloadPolicy = .download
    ) async throws(ThumbcacheError) -> [Result<ByteBuffer?, ThumbcacheError>] {
        if profiles.isEmpty { return [] }
        var request = ThumbcacheRequest("MGET", try user.asUser)
        request.append(counted: profiles)
        request.append(size)
        request.append(wait, policy)
        let value = try await reply(to: request).value
        guard let elements = value.elements, elements.count == profiles.count else {
            throw .protocolViolation("MGET of \(profiles.count) profiles was not answered by as many")
        }
        return elements.map { element in
            switch element {
            case .null: .success(nil)
            case .error(let code, let message): .failure(.server(ServerErrorCode(rawValue: code), message: message))
            default:
                element.bytes.map { .success($0) }
                    ?? .failure(.protocolViolation("an element of MGET that is no image"))
            }
        }
    }

    /// Stores an image that the caller has.
    /// - Parameters:
    ///   - image: PNG, JPEG, GIF, WebP or AVIF, told by the bytes.
    ///   - size: the image key, in pixels, 1 to 4096.
    ///   - timeToLive: whole seconds until it is stale and the origin is asked; else it stays until it is purged,
    ///     evicted or put again.
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

    /// Has what is missing or stale downloaded in the background; ``ThumbcacheEvent/update(user:profile:epoch:)`` tells
    /// what has come.
    /// - Returns: how many are queued.
    public func warm(
        _ user: ThumbcacheID, _ profiles: [ThumbcacheID], size: PictureSize? = nil
    ) async throws(ThumbcacheError) -> Int {
        if profiles.isEmpty { return 0 }
        var request = ThumbcacheRequest("WARM", try user.asUser)
        request.append(counted: profiles)
        request.append(size)
        let value = try await reply(to: request).value
        guard let number = value.number else { throw .protocolViolation("WARM was answered by no number") }
        return number
    }

    /// What is held of a profile, without the picture; nil where nothing is. Nothing is downloaded.
    public func stat(
        _ user: ThumbcacheID, _ profile: ThumbcacheID, size: PictureSize? = nil
    ) async throws(ThumbcacheError) -> ImageStatus? {
        var request = ThumbcacheRequest("STAT", try user.asUser, profile)
        request.append(size)
        let value = try await reply(to: request).value
        return value.isNull ? nil : try ImageStatus(value)
    }
}

extension ThumbcacheRequest {
    static func get(
        _ user: ThumbcacheID, _ profile: ThumbcacheID, _ size: PictureSize?, _ url: String?, _ wait: Duration?,
        _ policy: DownloadPolicy
    ) throws(ThumbcacheError) -> ThumbcacheRequest {
        var request = ThumbcacheRequest("GET", try user.asUser, profile)
        request.append(size)
        request.append("URL", url)
        request.append(wait, policy)
        request.append("META")
        return request
    }

    mutating func append(_ wait: Duration?, _ policy: DownloadPolicy) {
        switch policy {
        case .download: mayWait = true
        case .cachedOnly: append("CACHED")
        case .inBackground: append("NOWAIT")
        }
        append("WAIT", wait.map { TimeAmount($0).nanoseconds / 1_000_000 })
    }
}
