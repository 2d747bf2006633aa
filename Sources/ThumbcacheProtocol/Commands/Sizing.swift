/// How a picture is fitted into the square of its size.
public enum PictureFit: String, Sendable, CaseIterable {
    case cover, contain
}

/// The file format that a picture is wanted in.
public enum PictureFormat: String, Sendable, CaseIterable {
    case source, png, jpeg, webp
}

/// `SIZE px [FIT cover|contain] [FORMAT source|png|jpeg|webp]`
public struct Sizing: Sendable, Hashable {
    /// Pixels; 0 where none are named, and then neither is what follows.
    public var size: UInt16 = 0
    public var fit = PictureFit.cover
    public var format = PictureFormat.source

    public init() {}
}

/// A command that may name a size.
public protocol SizedCommand {
    var sizing: Sizing { get set }
}

extension SizedCommand {
    /// Pixels; 0 where none are named.
    public var size: UInt16 {
        get { sizing.size }
        set { sizing.size = newValue }
    }
}

extension Arguments {
    /// Takes the value of SIZE, FIT or FORMAT.
    mutating func take(_ option: Option, into sizing: inout Sizing) throws(CommandError) {
        switch option {
        case .size: sizing.size = try size()
        case .fit: sizing.fit = try word()
        case .format: sizing.format = try word()
        default: throw notTaken()
        }
    }

    /// To be called behind the last option.
    func check(_ sizing: Sizing) throws(CommandError) {
        guard sizing.size == 0, seen(.fit) || seen(.format) else { return }
        throw CommandError(.err, "\(seen(.fit) ? "FIT" : "FORMAT") of '\(command.name)' needs SIZE: \(expected)")
    }
}
