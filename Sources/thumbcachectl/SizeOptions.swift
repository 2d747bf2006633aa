import ArgumentParser
import NIOCore
@_spi(Wire) import Thumbcache
import ThumbcacheProtocol

/// `--size`, `--fit` and `--format`.
struct SizeOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Pixels, 1 to 4096: an image that fits into a square of that side.", valueName: "px"))
    var size: Int?

    @Option(help: ArgumentHelp("With --size: cover (fills the square) or contain (lies inside).", valueName: "fit"))
    var fit: ImageFit?

    @Option(help: ArgumentHelp("With --size: source, png, jpeg or webp.", valueName: "format"))
    var format: ImageFormat?

    func validate() throws {
        try thumbcachectl.validate("size", size, in: CommandLimits.size, "pixels")
        if size == nil, fit != nil || format != nil {
            throw ValidationError("--\(fit == nil ? "format" : "fit") goes with --size")
        }
    }

    var words: [ByteBuffer] { option("SIZE", size) + option("FIT", fit?.rawValue) + option("FORMAT", format?.rawValue) }

    var imageSize: ImageSize? { size.map { ImageSize($0, fit: fit ?? .cover, format: format ?? .source) } }
}

extension ImageFit: ExpressibleByArgument {}
extension ImageFormat: ExpressibleByArgument {}
