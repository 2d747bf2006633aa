import NIOCore

/// The first message to a worker of the renderer. The worker confines itself after reading it.
package struct WorkerLimits: Sendable, Hashable {
    /// Maximum of width times height of a source image. The worker's memory limit follows from it.
    package var pixels: UInt32

    package init(pixels: UInt32) { self.pixels = pixels }

    package func write(to buffer: inout ByteBuffer) {
        MessageWriter.add(to: &buffer) { message in message.integer(pixels) }
    }

    package init(_ fields: ByteBuffer) throws(MessageError) {
        var message = MessageReader(fields)
        pixels = try message.integer()
        try message.end()
    }
}

/// The reply to ``WorkerLimits``, sent when the worker is confined. If the worker ends before it, no renderer is
/// available; if it ends afterwards, the source image is at fault.
package struct WorkerGreeting: Sendable, Hashable {
    private static let byte = UInt8(ascii: "r")

    package init() {}

    package func write(to buffer: inout ByteBuffer) {
        MessageWriter.add(to: &buffer) { message in message.integer(Self.byte) }
    }

    package init(_ fields: ByteBuffer) throws(MessageError) {
        var message = MessageReader(fields)
        guard try message.integer() == Self.byte else { throw MessageError("not a greeting") }
        try message.end()
    }
}
