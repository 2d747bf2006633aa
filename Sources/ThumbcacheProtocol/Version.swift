/// Of the daemon and its tool, which are released together.
public enum Version {
    /// What `--version`, HELLO and INFO say.
    public static let current = "0.1.0"
}
