import Thumbcache

/// Computes the field Cache-Control. Every value is `private`: no shared cache may keep an image of a user.
struct CachePolicy: Equatable, Sendable {
    /// The longest time in seconds that a browser uses an image without a request; 0 requires a request each time.
    let longest: Int64
    /// Seconds until the URL's signature expires; nil for a URL without one.
    var signatureLeft: Int64?

    /// Stored, but never used without a request.
    static let revalidated = "private, no-cache"

    /// The remaining freshness of the image, but at most the limit and the time until the URL expires.
    func value(for status: ImageStatus) -> String {
        guard status.state == .fresh else { return Self.revalidated }
        // An image without a limit was PUT and stays fresh until it is replaced.
        let left = status.timeToLive?.components.seconds ?? longest
        return value(seconds: left)
    }

    /// For a response that depends on the URL alone.
    func value(seconds: Int64) -> String {
        let age = min(seconds, longest, signatureLeft ?? longest)
        return age > 0 ? "private, max-age=\(age), must-revalidate" : Self.revalidated
    }
}
