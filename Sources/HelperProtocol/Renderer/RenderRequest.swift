import NIOCore

/// How a picture is fitted into a square.
public enum PictureFit: UInt8, Sendable, Hashable {
    /// It fills the square; what stands out is cut off on both sides alike.
    case cover = 0
    /// It lies inside.
    case contain = 1
}

/// A file format of pictures.
public enum PictureFormat: UInt8, Sendable, Hashable {
    /// That of the source; PNG for GIF, and WebP for AVIF.
    case source = 0
    case png = 1
    case jpeg = 2
    case webp = 3
    /// No file: red, green, blue and opacity of each pixel, a byte each, in rows from the top.
    case pixels = 4
}

/// A picture in another size, as the daemon asks a worker for it: this head, then the picture.
///
/// Big-endian: length (4 bytes), number (4), side (2), fit (1), format (1).
public struct RenderRequest: Sendable, Hashable {
    /// Bytes of the head.
    public static let headLength = 12
    /// Bytes of a picture that a worker takes; a longer one ends the connection.
    public static let longestPicture = 64 << 20

    /// Bytes of the picture.
    public var length: Int
    /// Which the answer repeats. It names nobody.
    public var number: UInt32
    /// Pixels of the square's side.
    public var side: UInt16
    public var fit: PictureFit
    public var format: PictureFormat

    public init(length: Int, number: UInt32, side: UInt16, fit: PictureFit, format: PictureFormat) {
        (self.length, self.number, self.side) = (length, number, side)
        (self.fit, self.format) = (fit, format)
    }

    public func write(to buffer: inout ByteBuffer) {
        buffer.writeMultipleIntegers(UInt32(length), number, side, fit.rawValue, format.rawValue)
    }

    /// Takes the head.
    /// - Returns: nil where it is none: too short, a side of 0, a word that is not known, a picture that is too long.
    public init?(_ buffer: inout ByteBuffer) {
        guard
            let (length, number, side, fit, format) = buffer.readMultipleIntegers(
                as: (UInt32, UInt32, UInt16, UInt8, UInt8).self),
            side > 0, length <= Self.longestPicture, let fit = PictureFit(rawValue: fit),
            let format = PictureFormat(rawValue: format)
        else { return nil }
        self.init(length: Int(length), number: number, side: side, fit: fit, format: format)
    }
}

/// What became of it: this head, then the rendition.
///
/// Big-endian: length (4 bytes), number (4), outcome (1), format (1), width (2), height (2), nothing (2).
public struct RenderAnswer: Sendable, Hashable {
    public enum Outcome: UInt8, Sendable, Hashable {
        case rendered = 0
        /// No decoder takes it, or it breaks off.
        case broken = 1
        case tooManyPixels = 2
        case unknownFormat = 3
    }

    /// Bytes of the head.
    public static let headLength = 16

    /// Bytes of the rendition; 0 where there is none.
    public var length: Int
    public var number: UInt32
    public var outcome: Outcome
    /// Never ``PictureFormat/source`` of what is rendered.
    public var format: PictureFormat
    /// Pixels.
    public var width, height: UInt16

    public init(
        length: Int = 0, number: UInt32, outcome: Outcome, format: PictureFormat = .source, width: UInt16 = 0,
        height: UInt16 = 0
    ) {
        (self.length, self.number, self.outcome) = (length, number, outcome)
        (self.format, self.width, self.height) = (format, width, height)
    }

    public func write(to buffer: inout ByteBuffer) {
        buffer.writeMultipleIntegers(
            UInt32(length), number, outcome.rawValue, format.rawValue, width, height, UInt16(0))
    }

    /// Takes the head. Nothing of it is believed: who holds the worker may have written it.
    /// - Returns: nil where it is none: too short, a word that is not known, a rendition without bytes, pixels or
    ///   format, bytes of what is not rendered, more or fewer than its pixels have.
    public init?(_ buffer: inout ByteBuffer) {
        guard
            let (length, number, outcome, format, width, height, _) = buffer.readMultipleIntegers(
                as: (UInt32, UInt32, UInt8, UInt8, UInt16, UInt16, UInt16).self),
            let outcome = Outcome(rawValue: outcome), let format = PictureFormat(rawValue: format),
            length <= RenderRequest.longestPicture
        else { return nil }
        let isWhole = length > 0 && width > 0 && height > 0 && format != .source
        guard outcome == .rendered ? isWhole : length == 0 else { return nil }
        guard format != .pixels || length == 4 * Int(width) * Int(height) else { return nil }
        self.init(
            length: Int(length), number: number, outcome: outcome, format: format, width: width, height: height)
    }
}
