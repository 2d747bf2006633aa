import NIOCore

/// The protocol version of a connection: 2 initially, 3 after `HELLO 3`.
public enum RESPVersion: Int, Sendable, CaseIterable {
    case two = 2
    case three = 3
}

/// The type that a null replaces. Version 2 has one null per type; version 3 has one for all.
public enum NullKind: Sendable {
    case bulk, array

    public static let map = NullKind.array
}

extension ByteBuffer {
    /// Writes a request: an array of bulk strings.
    public mutating func writeRequest(_ arguments: [ByteBuffer]) {
        writeArrayHeader(count: arguments.count)
        for argument in arguments { writeBulkString(argument) }
    }
}

// Replies are written directly into the connection's buffer, without allocations except for its growth.
// https://redis.io/docs/latest/develop/reference/protocol-spec/
extension ByteBuffer {
    /// Returns a reply in a new buffer.
    public static func reply(_ write: (inout ByteBuffer) -> Void) -> ByteBuffer {
        var buffer = ByteBuffer()
        write(&buffer)
        return buffer
    }

    /// Writes `+text`. Line breaks in the text become spaces, since they would end the reply.
    public mutating func writeSimpleString(_ text: String) {
        writeInteger(UInt8(ascii: "+"))
        writeLine(text)
    }

    /// Writes `-CODE message`. Line breaks in the message become spaces.
    public mutating func writeRESPError(code: String, message: String) {
        writeInteger(UInt8(ascii: "-"))
        writeWithoutLineBreaks(code)
        writeInteger(UInt8(ascii: " "))
        writeLine(message)
    }

    public mutating func writeRESPInteger(_ value: Int) { writeLength(value, marker: ":") }

    public mutating func writeBulkString(_ text: String) {
        var text = text
        text.withUTF8 { writeBulkString(UnsafeRawBufferPointer($0)) }
    }

    /// Copies the bytes. For an image without a copy, see ``writeBulkPrefix(count:toEndOf:)``.
    public mutating func writeBulkString(_ bytes: ByteBuffer) {
        bytes.withUnsafeReadableBytes { writeBulkString($0) }
    }

    public mutating func writeBulkString(_ bytes: [UInt8]) { bytes.withUnsafeBytes { writeBulkString($0) } }

    /// Copies the bytes. Reserves space once, because a reservation costs more than copying a short string.
    public mutating func writeBulkString(_ bytes: UnsafeRawBufferPointer) {
        let start = Self.lineLength(bytes.count)
        let end = start + bytes.count
        writeWithUnsafeMutableBytes(minimumWritableBytes: end + 2) { room in
            Self.writeLength(bytes.count, marker: "$", toEndOf: UnsafeMutableRawBufferPointer(rebasing: room[..<start]))
            UnsafeMutableRawBufferPointer(rebasing: room[start..<end]).copyMemory(from: bytes)
            room[end] = CR
            room[end + 1] = LF
            return end + 2
        }
    }

    /// Writes `*count`; the caller writes that many values.
    public mutating func writeArrayHeader(count: Int) { writeLength(count, marker: "*") }

    /// Writes `%count`; the caller writes that many pairs. In version 2, an array of twice the count.
    public mutating func writeMapHeader(count: Int, version: RESPVersion) {
        switch version {
        case .two: writeLength(count * 2, marker: "*")
        case .three: writeLength(count, marker: "%")
        }
    }

    /// Writes `~count`; in version 2 an array.
    public mutating func writeSetHeader(count: Int, version: RESPVersion) {
        writeLength(count, marker: version == .two ? "*" : "~")
    }

    /// Writes `>count`, a push message; in version 2 an array.
    public mutating func writePushHeader(count: Int, version: RESPVersion) {
        writeLength(count, marker: version == .two ? "*" : ">")
    }

    /// Writes `_`; in version 2 `$-1` or `*-1`.
    public mutating func writeNull(kind: NullKind = .bulk, version: RESPVersion) {
        switch (version, kind) {
        case (.three, _): writeStaticString("_\r\n")
        case (.two, .bulk): writeStaticString("$-1\r\n")
        case (.two, .array): writeStaticString("*-1\r\n")
        }
    }

    /// Writes text for people: `=length`, `txt:`; in version 2 a bulk string.
    public mutating func writeVerbatimString(_ text: String, version: RESPVersion) {
        switch version {
        case .two: writeBulkString(text)
        case .three:
            writeLength(text.utf8.count + 4, marker: "=")
            writeStaticString("txt:")
            writeString(text)
            writeCRLF()
        }
    }

    /// Writes the prefix of a bulk string, such as `$8192\r\n`, to the end of `room`, which must have at least 22
    /// bytes. Returns its length.
    public static func writeBulkPrefix(count: Int, toEndOf room: UnsafeMutableRawBufferPointer) -> Int {
        writeLength(count, marker: "$", toEndOf: room)
    }

    /// The bytes after a bulk string.
    public static let bulkSuffix: [UInt8] = [CR, LF]

    private mutating func writeCRLF() { writeInteger(UInt16(0x0D0A)) }

    /// Writes a marker, a decimal number and CRLF.
    private mutating func writeLength(_ value: Int, marker: Unicode.Scalar) {
        let length = Self.lineLength(value)
        writeWithUnsafeMutableBytes(minimumWritableBytes: length) { room in
            Self.writeLength(value, marker: marker, toEndOf: UnsafeMutableRawBufferPointer(rebasing: room[..<length]))
        }
    }

    /// The length of a line with a marker, the number and CRLF.
    private static func lineLength(_ value: Int) -> Int {
        var length = value < 0 ? 5 : 4
        var rest = value.magnitude
        while rest >= 10 {
            length += 1
            rest /= 10
        }
        return length
    }

    @discardableResult
    private static func writeLength(
        _ value: Int, marker: Unicode.Scalar, toEndOf room: UnsafeMutableRawBufferPointer
    ) -> Int {
        var start = room.count
        func put(_ byte: UInt8) {
            start &-= 1
            room[start] = byte
        }
        put(LF)
        put(CR)
        var rest = value.magnitude
        repeat {
            put(UInt8(ascii: "0") &+ UInt8(truncatingIfNeeded: rest % 10))
            rest /= 10
        } while rest > 0
        if value < 0 { put(UInt8(ascii: "-")) }
        put(UInt8(ascii: marker))
        return room.count - start
    }

    private mutating func writeLine(_ text: String) {
        writeWithoutLineBreaks(text)
        writeCRLF()
    }

    private mutating func writeWithoutLineBreaks(_ text: String) {
        let start = writerIndex
        writeString(text)
        guard text.utf8.contains(where: { $0 == CR || $0 == LF }) else { return }
        for (offset, byte) in text.utf8.enumerated() where byte == CR || byte == LF {
            setInteger(UInt8(ascii: " "), at: start + offset)
        }
    }
}
