import NIOCore

/// How a picture is to be made fit for a size: what FIT and FORMAT say.
public struct RenditionStyle: Hashable, Sendable {
    /// How it is fitted into the square.
    public enum Fit: UInt8, Sendable, CaseIterable {
        /// It fills the square; what stands out is cut off on both sides alike.
        case cover = 0
        /// It lies inside.
        case contain = 1
    }

    /// The file format that it is to have.
    public enum Format: UInt8, Sendable, CaseIterable {
        /// That of the source.
        case source = 0
        case png = 1
        case jpeg = 2
        case webp = 3

        /// Whether a picture of that kind is what was asked for.
        func allows(_ kind: ImageKind) -> Bool {
            switch self {
            case .source: kind == .png || kind == .jpeg || kind == .webp
            case .png: kind == .png
            case .jpeg: kind == .jpeg
            case .webp: kind == .webp
            }
        }
    }

    public var fit: Fit
    public var format: Format

    public init(fit: Fit = .cover, format: Format = .source) {
        (self.fit, self.format) = (fit, format)
    }

    /// What a request has that names neither.
    public static let plain = RenditionStyle()

    /// 0 to 7; 0 for ``plain``. Part of the disk format.
    var number: UInt8 { fit.rawValue << 2 | format.rawValue }

    init(number: UInt8) {
        fit = number & 4 == 0 ? .cover : .contain
        format = Format(rawValue: number & 3) ?? .source
    }
}

/// When an origin's pictures are made in other sizes here.
public enum RenditionPolicy: String, Sendable, CaseIterable {
    /// Where the origin's URL has no `{size}`, and for who names a FIT or FORMAT.
    case auto
    case always
    case never
}

/// Makes pictures in other sizes, in another process: whoever decodes a picture is in the hands of who made it.
public protocol ImageRendering: Sendable {
    /// Has a picture made. `onEnd` is called exactly once, on any thread, maybe before this returns.
    /// - Parameter isWanted: asked right before it is made; where nobody wants it any more it fails as `unavailable`.
    func render(
        _ source: ByteBuffer, _ wish: RenditionOptions, for uid: UInt32, isWanted: @escaping @Sendable () -> Bool,
        onEnd: @escaping @Sendable (Result<ByteBuffer, RenditionFailure>) -> Void)

    /// A log-in of that uid is over, or purged: no process that has seen a picture of it lives on.
    func forget(_ uid: UInt32)
}

/// A picture in another size.
public struct RenditionOptions: Sendable, Hashable {
    /// Pixels of the square's side, 1 to 4096.
    public let side: UInt16
    public let style: RenditionStyle
    /// Width times height that the source may have.
    public let mostPixels: Int
    /// Bytes that what is made may have.
    public let mostBytes: Int

    public init(side: UInt16, style: RenditionStyle, mostPixels: Int, mostBytes: Int) {
        (self.side, self.style, self.mostPixels, self.mostBytes) = (side, style, mostPixels, mostBytes)
    }
}

/// Why there is no rendition.
public enum RenditionFailure: Error, Sendable, Equatable {
    /// It is the picture's fault: it will fail again.
    case badPicture
    /// Nobody makes renditions at the moment.
    case unavailable
    /// Nobody ever does: there is no renderer, or the origin wants none.
    case notMade
}
