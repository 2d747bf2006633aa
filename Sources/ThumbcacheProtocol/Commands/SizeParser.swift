import ImageOptions

/// Collects the values of SIZE, FIT and FORMAT, which may be given in any order.
struct SizeParser {
    private var pixels: Int?
    private var fit = ImageFit.cover
    private var format = ImageFormat.source

    /// Reads the value of one of the three options from `arguments`; throws for any other option.
    mutating func read(_ option: Option, from arguments: inout Arguments) throws(CommandError) {
        switch option {
        case .size: pixels = try arguments.size()
        case .fit: fit = try arguments.word()
        case .format: format = try arguments.word()
        default: throw arguments.unsupportedOption()
        }
    }

    /// The size named, if any. Call it after the last option; throws if FIT or FORMAT is given without SIZE.
    func size(of arguments: borrowing Arguments) throws(CommandError) -> ImageSize? {
        if let pixels { return ImageSize(pixels, fit: fit, format: format) }
        guard arguments.seen(.fit) || arguments.seen(.format) else { return nil }
        let option = arguments.seen(.fit) ? "FIT" : "FORMAT"
        throw CommandError(.err, "\(option) of '\(arguments.command.name)' needs SIZE: \(arguments.expected)")
    }
}
