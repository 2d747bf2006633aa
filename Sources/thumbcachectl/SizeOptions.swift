import ArgumentParser
import NIOCore
@_spi(Wire) import Thumbcache
import ThumbcacheProtocol

/// `--size`, `--fit` and `--format`.
struct SizeOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Pixels, 1 to 4096: a picture that fits into a square of that side.", valueName: "px"))
    var size: Int?

    @Option(help: ArgumentHelp("With --size: cover (fills the square) or contain (lies inside).", valueName: "fit"))
    var fit: PictureSize.Fit?

    @Option(help: ArgumentHelp("With --size: source, png, jpeg or webp.", valueName: "format"))
    var format: PictureSize.Format?

    func validate() throws {
        try thumbcachectl.validate("size", size, in: CommandLimits.size, "pixels")
        if size == nil, fit != nil || format != nil {
            throw ValidationError("--\(fit == nil ? "format" : "fit") goes with --size")
        }
    }

    /// For a request.
    var words: [ByteBuffer] { option("SIZE", size) + option("FIT", fit?.rawValue) + option("FORMAT", format?.rawValue) }

    var picture: PictureSize? { size.map { PictureSize($0, fit: fit ?? .cover, format: format ?? .source) } }
}

extension PictureSize.Fit: ExpressibleByArgument {}
extension PictureSize.Format: ExpressibleByArgument {}
