import CacheCore
import LinuxSupport
import NIOCore

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

    /// Reads a count or a duration. A negative number is an error.
    /// - Parameter most: the largest value returned; a larger number is reduced to it. Bounds what a helper process can
    ///   bring into the daemon's arithmetic, so that no later sum or product overflows.
    mutating func count(most: Int) throws(MessageError) -> Int {
        let value = try integer(as: Int64.self)
        guard value >= 0 else { throw MessageError("has \(value) of something") }
        return Int(min(value, Int64(most)))
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

/// Makes messages of the bytes of a stream, whatever pieces they come in.
///
/// Fields that came whole are lent where they lie; others, which may hold a token, are collected in memory that is
/// wiped. A body goes straight to where it is to stay.
package struct MessageAssembler {
    /// Bytes of one message's fields. A URL has 2 KiB, a token 64 KiB, and the figures of an origin some hundred bytes.
    private static let longestFields = 1 << 20

    /// Bytes of one message's body.
    package var longestBody: Int
    /// The head and the fields of a message, of which a part came before the rest.
    private var held = ByteBuffer()
    private var body: ImageBytes.Builder?
    private var bodyMissing = 0

    package init(longestBody: Int) { self.longestBody = longestBody }

    /// - Parameter take: is lent each message: its fields, and its body, if it has one.
    /// - Throws: where this is no message, or one that is longer than may be. Nothing that follows has a meaning then.
    package mutating func receive(
        _ bytes: ByteBuffer, _ take: (ByteBuffer, inout ImageBytes.Builder?) throws(MessageError) -> Void
    ) throws(MessageError) {
        var bytes = bytes
        while bytes.readableBytes > 0 {
            if bodyMissing == 0, body == nil {
                guard let fields = try takeFields(&bytes) else { return }
                if bodyMissing == 0 {
                    try take(fields, &body)
                    letGo()
                    continue
                }
            }
            takeBody(&bytes)
            if bodyMissing == 0 {
                var fields = held
                fields.moveReaderIndex(forwardBy: MessageWriter.headLength)
                try take(fields, &body)
                body = nil
                letGo()
            }
        }
    }

    /// Bytes that are missing of the message that it is in the middle of, as far as it can tell.
    package var missing: Int {
        get throws(MessageError) {
            guard let head = try head(of: held) else { return MessageWriter.headLength - held.readableBytes }
            return MessageWriter.headLength + head.fields - held.readableBytes + bodyMissing
        }
    }

    /// Forgets what it has of a message that never came to its end.
    package mutating func clear() {
        letGo()
        (body, bodyMissing) = (nil, 0)
    }

    /// Nobody looks at the fields any more that were lent.
    private mutating func letGo() {
        held.wipeReadableBytesOfAll()
        held = ByteBuffer()
    }

    /// The fields of the next message, once they are there. If it has a body, they stay in ``held``.
    private mutating func takeFields(_ bytes: inout ByteBuffer) throws(MessageError) -> ByteBuffer? {
        let headLength = MessageWriter.headLength
        if held.readableBytes == 0, let head = try head(of: bytes), bytes.readableBytes >= headLength + head.fields,
            head.body == 0
        {
            bytes.moveReaderIndex(forwardBy: headLength)
            return bytes.readSlice(length: head.fields)
        }
        hold(headLength, of: &bytes)
        guard let head = try head(of: held) else { return nil }
        hold(headLength + head.fields, of: &bytes)
        guard held.readableBytes == headLength + head.fields else { return nil }
        if head.body > 0 {
            bodyMissing = head.body
            body = ImageBytes.Builder(capacity: head.body)
        }
        return held.getSlice(at: held.readerIndex + headLength, length: head.fields)
    }

    /// Adds to what is held until it is so many bytes, or there are no more.
    private mutating func hold(_ count: Int, of bytes: inout ByteBuffer) {
        guard held.readableBytes < count,
            let part = bytes.readSlice(length: min(count - held.readableBytes, bytes.readableBytes))
        else { return }
        held.makeRoomWiping(for: count - held.readableBytes)
        held.writeImmutableBuffer(part)
    }

    private mutating func takeBody(_ bytes: inout ByteBuffer) {
        guard let part = bytes.readSlice(length: min(bodyMissing, bytes.readableBytes)) else { return }
        body?.buffer.writeImmutableBuffer(part)
        bodyMissing -= part.readableBytes
    }

    private func head(of bytes: ByteBuffer) throws(MessageError) -> (fields: Int, body: Int)? {
        guard
            let (fields, body) = bytes.getMultipleIntegers(at: bytes.readerIndex, as: (UInt32, UInt32).self)
        else { return nil }
        guard fields <= Self.longestFields else { throw MessageError("has \(fields) bytes of fields") }
        guard body <= longestBody else { throw MessageError("has a body of \(body) bytes") }
        return (Int(fields), Int(body))
    }
}
