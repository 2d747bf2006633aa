/// The version of all programs, which are released together.
public enum Version {
    public static let current = "0.1.0"
}
