/// The size that a picture is wanted in: a number of pixels, or more.
///
/// ```swift
/// try await client.get(user, profile, size: 64)
/// try await client.get(user, profile, size: PictureSize(64, fit: .contain, format: .png))
/// ```
public struct PictureSize: Sendable, Hashable, ExpressibleByIntegerLiteral {
    /// How a picture is fitted into the square.
    public enum Fit: String, Sendable, Hashable, CaseIterable {
        /// It fills the square; what stands out is cut off on both sides alike.
        case cover
        /// It lies inside.
        case contain
    }

    /// The file format.
    public enum Format: String, Sendable, Hashable, CaseIterable {
        /// That of the source; PNG for GIF, and WebP for AVIF.
        case source
        case png, jpeg, webp
    }

    /// The square's side, 1 to 4096. No picture is enlarged.
    public var pixels: Int
    public var fit: Fit
    public var format: Format

    public init(_ pixels: Int, fit: Fit = .cover, format: Format = .source) {
        (self.pixels, self.fit, self.format) = (pixels, fit, format)
    }

    public init(integerLiteral pixels: Int) { self.init(pixels) }
}

extension ThumbcacheRequest {
    mutating func append(_ size: PictureSize?) {
        guard let size else { return }
        append("SIZE", size.pixels)
        append("FIT", size.fit == .cover ? nil : size.fit.rawValue)
        append("FORMAT", size.format == .source ? nil : size.format.rawValue)
    }
}
