import NIOCore

/// The first message on a connection: what the daemon sends before a worker gives up its rights.
public struct WorkerLimits: Sendable, Hashable {
    /// Bytes of the message.
    public static let length = 4

    /// Width times height of the largest source that the worker accepts. Its memory limit follows from this.
    public var pixels: UInt32

    public init(pixels: UInt32) { self.pixels = pixels }

    public func write(to buffer: inout ByteBuffer) { buffer.writeInteger(pixels) }

    /// - Returns: nil if the buffer is too short.
    public init?(_ buffer: inout ByteBuffer) {
        guard let pixels = buffer.readInteger(as: UInt32.self) else { return nil }
        self.init(pixels: pixels)
    }
}

/// The reply to ``WorkerLimits``: the worker has given up its rights. If the worker ends before, there is no renderer; if
/// it ends afterwards, the source is at fault.
public enum WorkerGreeting {
    /// The whole message.
    public static let byte = UInt8(ascii: "r")
}
