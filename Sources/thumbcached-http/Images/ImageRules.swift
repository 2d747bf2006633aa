import NIOCore
import NIOHTTP1
import Thumbcache

/// A request for an image of the daemon.
struct ImageRequest: Equatable, Sendable {
    let user: ThumbcacheID
    let hash: String
    let size: Int
    let tags: EntityTags
    let defaultImage: DefaultImage
    let policy: CachePolicy

    var profile: ThumbcacheID { ThumbcacheID(hash) }
    var drawing: DefaultDrawing { DefaultDrawing(size: size, hash: hash) }
}

/// The next step of a request for an image.
enum ImageRoute: Sendable {
    case refused(HeadCheck.Refusal)
    /// A default image that needs no request to the daemon.
    case answered(Response)
    case image(ImageRequest)
}

/// Routes requests for images; a value without effects.
struct ImageRules: Sendable {
    let settings: ImageSettings
    /// nil unless `/u/` requires signed URLs.
    let keys: SigningKeys?
    let check: HeadCheck

    /// The size of a request without one, as with Gravatar and Libravatar.
    static let usualSize = 80

    /// - Parameter now: seconds since 1970.
    func route(_ head: HTTPRequestHead, now: Int64) -> ImageRoute {
        if let refusal = check.refusal(of: head) { return .refused(refusal) }
        let question = head.uri.utf8.firstIndex(of: UInt8(ascii: "?"))
        let path = head.uri[..<(question ?? head.uri.endIndex)]
        guard let image = ImagePath(path) else { return Self.refused(.notFound, Self.unknown) }
        guard let query = ImageQuery(question.map { head.uri[head.uri.utf8.index(after: $0)...] } ?? "") else {
            return Self.refused(.badRequest, "Invalid percent-encoding in the query.")
        }
        let user: ThumbcacheID
        var policy: CachePolicy
        switch image.owner {
        case .site:
            guard !settings.user.isEmpty else { return Self.refused(.notFound, Self.unknown) }
            user = ThumbcacheID(settings.user)
            policy = CachePolicy(longest: settings.longestAge)
        case .user(let named):
            user = named
            policy = CachePolicy(longest: settings.longestUserAge)
            switch settings.perUser {
            case .off: return Self.refused(.notFound, Self.unknown)
            case .open: break
            case .signed:
                guard let left = keys?.secondsLeft(path: path, query: query, now: now) else {
                    return Self.refused(.forbidden, "Missing, invalid or expired signature.")
                }
                policy.signatureLeft = left
            }
        }
        let size = query.size.map { min($0, settings.sizeLimit) } ?? 0
        let request = ImageRequest(
            user: user, hash: image.hash, size: size > 0 ? size : min(Self.usualSize, settings.sizeLimit),
            tags: EntityTags(head.headers["If-None-Match"]),
            defaultImage: DefaultImage(query, usual: settings.usualDefault, allowed: settings.defaultURLs),
            policy: policy)
        guard query.isForced else { return .image(request) }
        return .answered(defaultResponse(to: request, cacheControl: policy.value(seconds: .max)))
    }

    private static let unknown = "Not found; valid paths are /avatar/HASH and /u/USER/avatar/HASH."

    private static func refused(_ status: HTTPResponseStatus, _ sentence: String) -> ImageRoute {
        .refused(.init(response: Response(status, sentence), closes: false))
    }
}
