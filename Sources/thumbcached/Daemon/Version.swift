enum Version {
    /// What `--version`, HELLO and INFO say.
    static let current = "0.1.0"
}
