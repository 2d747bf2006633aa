import CacheCore
import LinuxSupport
import NIOCore

/// The head of every message to and from a helper process: the lengths of its fields and of its body.
///
/// Two big-endian UInt32, then the fields, then the body. Integers in the fields are big-endian; texts, tokens and
/// lists follow their length or count. Bodies are images.
struct MessageHead {
    static let length = 8
    /// Maximum bytes of the fields. A URL has 2 KiB, a token 64 KiB, and the statistics of an origin some 100 bytes.
    private static let maximumFields = 1 << 20

    let fields: Int
    let body: Int

    /// - Returns: nil if `bytes` holds less than a head.
    /// - Throws: if the message is too long.
    init?(_ bytes: ByteBuffer, maximumBody: Int) throws(MessageError) {
        guard let (fields, body) = bytes.getMultipleIntegers(at: bytes.readerIndex, as: (UInt32, UInt32).self) else {
            return nil
        }
        guard fields <= Self.maximumFields else {
            throw MessageError("fields: \(fields) bytes, at most \(Self.maximumFields)")
        }
        guard body <= maximumBody else { throw MessageError("body: \(body) bytes, at most \(maximumBody)") }
        (self.fields, self.body) = (Int(fields), Int(body))
    }
}

/// Writes the head and the fields of a message; ``MessageReader`` reads the fields.
///
/// A field may be a token, so the buffer never grows by realloc(3), which leaves a copy in freed memory.
package struct MessageWriter {
    private var buffer: ByteBuffer

    private init(_ buffer: ByteBuffer) { self.buffer = buffer }

    /// Appends a message to a buffer. The caller sends the body of `body` bytes after it.
    static func add(to buffer: inout ByteBuffer, body: Int = 0, _ write: (inout Self) -> Void) {
        let start = buffer.writerIndex
        var writer = Self(buffer)
        // A second reference to the storage would make the writer copy it, and free the first without wiping it.
        buffer = ByteBuffer()
        writer.integer(UInt64(0))
        write(&writer)
        writer.buffer.setInteger(UInt32(writer.buffer.writerIndex - start - MessageHead.length), at: start)
        writer.buffer.setInteger(UInt32(body), at: start + 4)
        buffer = writer.buffer
    }

    /// Returns fields that another message carries as one value. They may contain secrets.
    package static func encode(_ write: (inout Self) -> Void) -> Secret {
        var writer = Self(ByteBuffer())
        write(&writer)
        defer { writer.buffer.wipe() }
        return Secret(writer.buffer.readableBytesView)
    }

    mutating func integer<Value: FixedWidthInteger>(_ value: Value) {
        buffer.makeRoomWiping(for: MemoryLayout<Value>.size)
        buffer.writeInteger(value)
    }

    mutating func enumeration<Value: RawRepresentable<UInt8>>(_ value: Value) { integer(value.rawValue) }

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

/// Reads the fields of a message. The sender is not trusted: each length and count is checked against the bytes left.
package struct MessageReader {
    private var rest: ByteBuffer

    init(_ fields: ByteBuffer) { rest = fields }

    /// Reads all fields of ``MessageWriter/encode(_:)``.
    package static func decode(
        _ fields: Secret, _ read: (inout Self) throws(MessageError) -> Void
    ) throws(MessageError) {
        let buffer = fields.withBytes { ByteBuffer(bytes: $0) }
        defer { buffer.wipeReadableBytesOfAll() }
        var reader = Self(buffer)
        try read(&reader)
        try reader.end()
    }

    /// Throws if bytes are left.
    func end() throws(MessageError) {
        guard rest.readableBytes == 0 else { throw MessageError("\(rest.readableBytes) trailing bytes") }
    }

    mutating func integer<Value: FixedWidthInteger>(as type: Value.Type = Value.self) throws(MessageError) -> Value {
        guard let value = rest.readInteger(as: type) else { throw MessageError("number: truncated") }
        return value
    }

    mutating func enumeration<Value: RawRepresentable<UInt8>>(
        _ type: Value.Type = Value.self
    ) throws(MessageError) -> Value {
        let number = try integer(as: UInt8.self)
        guard let value = Value(rawValue: number) else { throw MessageError("unknown \(type) \(number)") }
        return value
    }

    /// Reads a count or a duration, and throws if it is negative.
    /// - Parameter maximum: the largest value returned; a larger number is reduced to it. This bounds numbers of a
    ///   helper process, so that no sum or product of them overflows.
    mutating func count(maximum: Int) throws(MessageError) -> Int {
        let value = try integer(as: Int64.self)
        guard value >= 0 else { throw MessageError("count: \(value) is negative") }
        return Int(min(value, Int64(maximum)))
    }

    mutating func flag() throws(MessageError) -> Bool { try integer(as: UInt8.self) != 0 }

    mutating func bytes() throws(MessageError) -> ByteBuffer {
        guard let bytes = rest.readSlice(length: Int(try integer(as: UInt32.self))) else {
            throw MessageError("text: truncated")
        }
        return bytes
    }

    mutating func text() throws(MessageError) -> String {
        guard let text = String(validating: try bytes().readableBytesView, as: UTF8.self) else {
            throw MessageError("text: not UTF-8")
        }
        return text
    }

    mutating func secret() throws(MessageError) -> Secret { Secret(try bytes().readableBytesView) }

    mutating func optional<Value>(
        _ read: (inout Self) throws(MessageError) -> Value
    ) throws(MessageError) -> Value? {
        try flag() ? try read(&self) : nil
    }

    /// - Parameter maximum: the maximum number of elements.
    mutating func list<Value>(
        maximum: Int, _ read: (inout Self) throws(MessageError) -> Value
    ) throws(MessageError) -> [Value] {
        let count = Int(try integer(as: UInt32.self))
        // Each element takes at least one byte.
        guard count <= maximum, count <= rest.readableBytes else {
            throw MessageError("list: \(count) elements, at most \(min(maximum, rest.readableBytes))")
        }
        var values: [Value] = []
        values.reserveCapacity(count)
        for _ in 0..<count { values.append(try read(&self)) }
        return values
    }
}

/// Why bytes are not a valid message.
package struct MessageError: Error, Equatable, CustomStringConvertible {
    package let description: String

    package init(_ reason: String) { description = "invalid message: \(reason)" }
}
