import NIOCore

extension ByteBuffer {
    /// A request as a client sends it: an array of bulk strings.
    public mutating func writeRequest(_ arguments: [ByteBuffer]) {
        writeArrayHeader(count: arguments.count)
        for argument in arguments { writeBulkString(argument) }
    }

    /// A request as a client sends it, its arguments in UTF-8.
    public mutating func writeRequest(_ arguments: [String]) {
        writeArrayHeader(count: arguments.count)
        for argument in arguments { writeBulkString(argument) }
    }
}
