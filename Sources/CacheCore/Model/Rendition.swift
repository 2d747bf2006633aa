import ImageOptions
import NIOCore

/// When an origin's images are rendered in other sizes.
public enum RenditionPolicy: String, Sendable, CaseIterable {
    /// If the origin's URLs have no `{size}`, and for FIT and FORMAT.
    case auto
    case always
    case never
}

/// Renders images in other sizes, in another process: an image can exploit the decoder that reads it.
public protocol ImageRendering: Sendable {
    /// Renders `source`. Calls `onEnd` exactly once, on any thread, maybe before this returns.
    /// - Parameter isWanted: called right before rendering; if it returns false the result is `unavailable`.
    func render(
        _ source: ByteBuffer, _ options: RenditionOptions, for uid: UInt32, isWanted: @escaping @Sendable () -> Bool,
        onEnd: @escaping @Sendable (Result<ByteBuffer, RenditionFailure>) -> Void)

    /// Ends every process that has read an image of the uid, after a logout or a purge.
    func forget(_ uid: UInt32)
}

public struct RenditionOptions: Sendable, Hashable {
    public let size: ImageSize
    /// Largest width times height of the source.
    public let mostPixels: Int
    /// Largest number of bytes of the rendition.
    public let mostBytes: Int

    public init(size: ImageSize, mostPixels: Int, mostBytes: Int) {
        (self.size, self.mostPixels, self.mostBytes) = (size, mostPixels, mostBytes)
    }
}

extension ImageFormat {
    /// Whether an image of that kind has this format.
    func allows(_ kind: ImageKind) -> Bool {
        switch self {
        case .source: kind == .png || kind == .jpeg || kind == .webp
        case .png: kind == .png
        case .jpeg: kind == .jpeg
        case .webp: kind == .webp
        }
    }
}

/// Why there is no rendition.
public enum RenditionFailure: Error, Sendable, Equatable {
    /// The image cannot be rendered; a retry would fail, too.
    case unreadableImage
    /// The renderer failed or is overloaded; a later retry may succeed.
    case unavailable
    /// There is no renderer, or the origin's `renditions` is `never`.
    case notMade
}
