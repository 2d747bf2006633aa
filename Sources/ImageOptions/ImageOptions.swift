/// How an image is fitted into the square of its size: the words of `FIT`.
public enum ImageFit: String, Sendable, Hashable, CaseIterable {
    /// Fills the square; crops equally on both sides.
    case cover
    /// Fits the whole image inside the square.
    case contain

    /// The value in file names of the store, in messages to the renderer and in renderer.h. Never reused.
    @inlinable public var byte: UInt8 {
        switch self {
        case .cover: 0
        case .contain: 1
        }
    }

    public init?(byte: UInt8) {
        guard let value = Self.allCases.first(where: { $0.byte == byte }) else { return nil }
        self = value
    }
}

/// The file format of an image in another size: the words of `FORMAT`.
public enum ImageFormat: String, Sendable, Hashable, CaseIterable {
    /// The source's format; PNG for GIF, and WebP for AVIF.
    case source
    case png, jpeg, webp

    /// The value in file names of the store, in messages to the renderer and in renderer.h. At most 3. Never reused.
    @inlinable public var byte: UInt8 {
        switch self {
        case .source: 0
        case .png: 1
        case .jpeg: 2
        case .webp: 3
        }
    }

    public init?(byte: UInt8) {
        guard let value = Self.allCases.first(where: { $0.byte == byte }) else { return nil }
        self = value
    }
}

/// The size of an image, in pixels, with fit and format: `SIZE px [FIT fit] [FORMAT format]`.
///
/// ```swift
/// try await client.get(user, profile, size: 64)
/// try await client.get(user, profile, size: ImageSize(64, fit: .contain, format: .png))
/// ```
public struct ImageSize: Sendable, Hashable, ExpressibleByIntegerLiteral {
    /// Side of the square, 1 to 4096. No image is enlarged.
    public var pixels: Int
    public var fit: ImageFit
    public var format: ImageFormat

    public init(_ pixels: Int, fit: ImageFit = .cover, format: ImageFormat = .source) {
        (self.pixels, self.fit, self.format) = (pixels, fit, format)
    }

    public init(integerLiteral pixels: Int) { self.init(pixels) }

    // Tables of images are indexed by size. The default implementations are not inlined into other modules, and compare
    // the words of fit and format.
    @inlinable public static func == (one: ImageSize, other: ImageSize) -> Bool {
        one.pixels == other.pixels && one.options == other.options
    }

    @inlinable public func hash(into hasher: inout Hasher) {
        hasher.combine(pixels)
        hasher.combine(options)
    }

    @inlinable var options: UInt16 { UInt16(fit.byte) << 8 | UInt16(format.byte) }
}
