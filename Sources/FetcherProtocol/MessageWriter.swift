import LinuxSupport
import NIOCore
import ThumbnailCache

/// Puts a message together: its head with two lengths, then its fields, each in a form that ``MessageReader`` reads.
///
/// A token may be among them. So the buffer never grows by realloc(3), which leaves what it moves where it was.
struct MessageWriter {
    /// The lengths of the fields and of the body, as a UInt32 each.
    static let headLength = 8

    private var buffer: ByteBuffer

    private init(_ buffer: ByteBuffer) { self.buffer = buffer }

    /// Adds a message to a buffer.
    /// - Parameters:
    ///   - body: bytes that the caller sends behind it.
    ///   - write: its fields.
    static func add(to buffer: inout ByteBuffer, body: Int = 0, _ write: (inout Self) -> Void) {
        let start = buffer.writerIndex
        var writer = Self(buffer)
        // A second share in it would have it copied, and the first be freed as it is.
        buffer = ByteBuffer()
        writer.integer(UInt64(0))
        write(&writer)
        writer.buffer.setInteger(UInt32(writer.buffer.writerIndex - start - headLength), at: start)
        writer.buffer.setInteger(UInt32(body), at: start + 4)
        buffer = writer.buffer
    }

    mutating func integer<Value: FixedWidthInteger>(_ value: Value) {
        buffer.makeRoomWiping(for: MemoryLayout<Value>.size)
        buffer.writeInteger(value)
    }

    mutating func flag(_ value: Bool) { integer(UInt8(value ? 1 : 0)) }

    mutating func bytes(_ bytes: some Collection<UInt8>) {
        buffer.makeRoomWiping(for: bytes.count + 4)
        buffer.writeInteger(UInt32(bytes.count))
        buffer.writeBytes(bytes)
    }

    mutating func text(_ text: String) { bytes(text.utf8) }

    mutating func secret(_ secret: Secret) { secret.withBytes { bytes($0) } }

    mutating func optional<Value>(_ value: Value?, _ write: (inout Self, Value) -> Void) {
        flag(value != nil)
        if let value { write(&self, value) }
    }

    mutating func list<Values: Collection>(_ values: Values, _ write: (inout Self, Values.Element) -> Void) {
        integer(UInt32(values.count))
        for value in values { write(&self, value) }
    }
}

/// Takes the fields of a message apart. Nothing that it reads is believed: every length is held against what is there.
struct MessageReader {
    private var rest: ByteBuffer

    init(_ fields: ByteBuffer) { rest = fields }

    /// Nothing is left.
    func end() throws(MessageError) {
        guard rest.readableBytes == 0 else { throw MessageError("has \(rest.readableBytes) bytes too many") }
    }

    mutating func integer<Value: FixedWidthInteger>(as type: Value.Type = Value.self) throws(MessageError) -> Value {
        guard let value = rest.readInteger(as: type) else { throw MessageError("ends within a number") }
        return value
    }

    /// A number that is never negative, such as one that counts.
    mutating func count() throws(MessageError) -> Int {
        let value = try integer(as: Int64.self)
        guard value >= 0 else { throw MessageError("has \(value) of something") }
        return Int(value)
    }

    mutating func flag() throws(MessageError) -> Bool { try integer(as: UInt8.self) != 0 }

    mutating func bytes() throws(MessageError) -> ByteBuffer {
        guard let bytes = rest.readSlice(length: Int(try integer(as: UInt32.self))) else {
            throw MessageError("ends within a text")
        }
        return bytes
    }

    mutating func text() throws(MessageError) -> String {
        guard let text = String(validating: try bytes().readableBytesView, as: UTF8.self) else {
            throw MessageError("has a text that is not UTF-8")
        }
        return text
    }

    mutating func secret() throws(MessageError) -> Secret { Secret(try bytes().readableBytesView) }

    mutating func optional<Value>(
        _ read: (inout Self) throws(MessageError) -> Value
    ) throws(MessageError) -> Value? {
        try flag() ? try read(&self) : nil
    }

    /// - Parameter most: how many there may be.
    mutating func list<Value>(
        most: Int, _ read: (inout Self) throws(MessageError) -> Value
    ) throws(MessageError) -> [Value] {
        let count = Int(try integer(as: UInt32.self))
        // Each takes a byte at least.
        guard count <= most, count <= rest.readableBytes else { throw MessageError("lists \(count) of something") }
        var values: [Value] = []
        values.reserveCapacity(count)
        for _ in 0..<count { values.append(try read(&self)) }
        return values
    }
}

/// What is wrong with a message: the end of a sentence that begins with its name.
package struct MessageError: Error, Equatable, CustomStringConvertible {
    package let description: String

    package init(_ description: String) { self.description = description }
}
