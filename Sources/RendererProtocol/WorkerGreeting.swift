/// What a worker says before anything else: that it has given up all it had. What ends it from then on is the doing of a
/// picture; where nothing greets, there is no renderer.
public enum WorkerGreeting {
    /// All there is of it.
    public static let byte = UInt8(ascii: "r")
}
