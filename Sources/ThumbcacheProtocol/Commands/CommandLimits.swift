/// Limits of arguments that the protocol fixes. ``RequestLimits`` has those that can be configured.
public enum CommandLimits {
    /// Bytes of a URL of GET.
    public static let url = 8 << 10
    /// Bytes of the name of an origin, or of a connection.
    public static let name = 512
    /// Bytes of a section of INFO, or of a command's name in COMMAND.
    static let shortName = 64
    /// SIZE, in pixels.
    public static let size = 1...4096
    /// WAIT, in milliseconds.
    public static let wait = 0...600_000
    /// Seconds of TTL: at most ten years of 365 days.
    public static let ttl = 1...315_360_000
    /// UID. The largest number of 32 bits means "no uid" in system calls.
    public static let uid = 0...4_294_967_294
}
