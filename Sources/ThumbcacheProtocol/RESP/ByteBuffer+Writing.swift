import NIOCore

/// The version of the protocol that a connection speaks: 2 from the first byte, 3 after `HELLO 3`.
public enum RESPVersion: Int, Sendable, CaseIterable {
    case two = 2
    case three = 3
}

/// What stands in the place of the null. Version 2 has one null for each; version 3 has one for all.
public enum NullKind: Sendable {
    case bulk, array

    public static let map = NullKind.array
}

extension ByteBuffer {
    /// A request as a client sends it: an array of bulk strings.
    public mutating func writeRequest(_ arguments: [ByteBuffer]) {
        writeArrayHeader(count: arguments.count)
        for argument in arguments { writeBulkString(argument) }
    }
}

// Replies, written straight into the connection's buffer: nothing here allocates but the growth of the buffer.
// https://redis.io/docs/latest/develop/reference/protocol-spec/
extension ByteBuffer {
    /// One reply in a buffer of its own.
    public static func reply(_ write: (inout ByteBuffer) -> Void) -> ByteBuffer {
        var buffer = ByteBuffer()
        write(&buffer)
        return buffer
    }

    /// `+text`. Line breaks in the text, which would end the line early, become spaces.
    public mutating func writeSimpleString(_ text: String) {
        writeInteger(UInt8(ascii: "+"))
        writeLine(text)
    }

    /// `-CODE message`. Line breaks in the message become spaces.
    public mutating func writeRESPError(code: String, message: String) {
        writeInteger(UInt8(ascii: "-"))
        writeWithoutLineBreaks(code)
        writeInteger(UInt8(ascii: " "))
        writeLine(message)
    }

    /// `:value`.
    public mutating func writeRESPInteger(_ value: Int) { writeLength(value, marker: ":") }

    public mutating func writeBulkString(_ text: String) {
        writeLength(text.utf8.count, marker: "$")
        writeString(text)
        writeCRLF()
    }

    /// Copies the bytes. An image is sent from where it lies instead, behind ``writeBulkPrefix(count:toEndOf:)``.
    public mutating func writeBulkString(_ bytes: ByteBuffer) {
        writeLength(bytes.readableBytes, marker: "$")
        writeImmutableBuffer(bytes)
        writeCRLF()
    }

    public mutating func writeBulkString(_ bytes: some Collection<UInt8>) {
        writeLength(bytes.count, marker: "$")
        writeBytes(bytes)
        writeCRLF()
    }

    /// `*count`, to be followed by as many values.
    public mutating func writeArrayHeader(count: Int) { writeLength(count, marker: "*") }

    /// `%count`, to be followed by as many pairs; in version 2 an array of twice the count.
    public mutating func writeMapHeader(count: Int, version: RESPVersion) {
        switch version {
        case .two: writeLength(count * 2, marker: "*")
        case .three: writeLength(count, marker: "%")
        }
    }

    /// `~count`; an array in version 2.
    public mutating func writeSetHeader(count: Int, version: RESPVersion) {
        writeLength(count, marker: version == .two ? "*" : "~")
    }

    /// `>count`: what nobody asked for; an array in version 2.
    public mutating func writePushHeader(count: Int, version: RESPVersion) {
        writeLength(count, marker: version == .two ? "*" : ">")
    }

    /// `_`; in version 2 `$-1` or `*-1`, whichever kind of value was due.
    public mutating func writeNull(kind: NullKind = .bulk, version: RESPVersion) {
        switch (version, kind) {
        case (.three, _): writeStaticString("_\r\n")
        case (.two, .bulk): writeStaticString("$-1\r\n")
        case (.two, .array): writeStaticString("*-1\r\n")
        }
    }

    /// Text to be shown to a person as it is: `=length`, `txt:`; a bulk string in version 2.
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

    /// Writes what stands before a bulk string of `count` bytes, such as `$8192\r\n`, to the end of `room`, which has
    /// at least 22 bytes. Returns how many bytes that is.
    public static func writeBulkPrefix(count: Int, toEndOf room: UnsafeMutableRawBufferPointer) -> Int {
        writeLength(count, marker: "$", toEndOf: room)
    }

    /// What stands behind a bulk string.
    public static let bulkSuffix: [UInt8] = [CR, LF]

    private mutating func writeCRLF() { writeInteger(UInt16(0x0D0A)) }

    /// A marker, a number in decimal, CRLF.
    private mutating func writeLength(_ value: Int, marker: Unicode.Scalar) {
        withUnsafeTemporaryAllocation(byteCount: 24, alignment: 1) { room in
            let count = Self.writeLength(value, marker: marker, toEndOf: room)
            writeBytes(UnsafeRawBufferPointer(rebasing: room.suffix(count)))
        }
    }

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
