/// How long the arguments of a command may be, in bytes. How many there may be is the decoder's to say.
public struct CommandLimits: Sendable, Equatable {
    /// A user, profile or session id.
    public var id: Int
    /// An image of PUT.
    public var image: Int
    /// A token of LOGIN.
    public var token: Int

    public init(id: Int = 512, image: Int = 5 << 20, token: Int = 8 << 10) {
        self.id = id
        self.image = image
        self.token = token
    }

    /// A URL of GET.
    public static let url = 8 << 10
    /// The name of an origin, or of a connection.
    public static let name = 512
    /// A section of INFO, or a command that COMMAND is asked about.
    static let word = 64
    /// Pixels of SIZE.
    public static let size = 1...4096
    /// Milliseconds of WAIT.
    public static let wait = 0...600_000
    /// Seconds of TTL: ten years of 365 days at most.
    public static let ttl = 1...315_360_000
    /// Uids of UID. The largest of 32 bits stands for none in system calls.
    public static let uid = 0...4_294_967_294
}
