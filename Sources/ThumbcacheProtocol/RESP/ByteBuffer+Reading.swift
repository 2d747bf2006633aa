import NIOCore

extension ByteBuffer {
    /// Reads the next reply, in either version of the protocol. Returns nil and consumes nothing if more bytes are
    /// needed; parsing then starts again at the beginning of the reply. Strings share the buffer's storage.
    /// - Parameters:
    ///   - limit: the maximum size of a reply, in bytes.
    ///   - depth: the maximum nesting of arrays and maps; 1 permits an array of plain values.
    /// - Throws: ``ProtocolError`` if the bytes are not a reply that thumbcached sends, or exceed a limit.
    public mutating func readReply(limit: Int = 1 << 30, depth: Int = 16) throws(ProtocolError) -> Value? {
        var missing = 0
        return try readReply(limit: limit, depth: depth, missing: &missing)
    }

    /// Reads the next reply as ``readReply(limit:depth:)`` does, and reports how many bytes an incomplete string lacks.
    /// - Parameter missing: set if the result is nil: the missing bytes of the incomplete string; 0 if unknown.
    public mutating func readReply(
        limit: Int = 1 << 30, depth: Int = 16, missing: inout Int
    ) throws(ProtocolError) -> Value? {
        let (value, length, missingBytes) = try withUnsafeReadableBytes { bytes throws(ProtocolError) in
            var parser = ReplyParser(buffer: self, bytes: bytes, limit: limit)
            return (try parser.value(depth: depth), parser.index, parser.missing)
        }
        if value == nil { missing = missingBytes } else { moveReaderIndex(forwardBy: length) }
        return value
    }
}

private struct ReplyParser {
    /// The buffer that owns ``bytes``.
    let buffer: ByteBuffer
    let bytes: UnsafeRawBufferPointer
    /// The maximum of ``index``.
    let limit: Int
    /// The number of parsed bytes; at most the number of bytes.
    var index = 0
    /// Bytes missing in the incomplete string; 0 if unknown.
    var missing = 0

    /// Maximum length of a line in bytes, including marker and CRLF.
    private static var maximumLine: Int { 64 << 10 }

    mutating func value(depth: Int) throws(ProtocolError) -> Value? {
        guard let line = try line() else { return nil }
        switch line.marker {
        case UInt8(ascii: "+"): return .simpleString(line.text)
        case UInt8(ascii: "-"):
            let words = line.text.split(separator: " ", maxSplits: 1, omittingEmptySubsequences: false)
            return .error(code: String(words[0]), message: words.count > 1 ? String(words[1]) : "")
        case UInt8(ascii: ":"):
            guard let number = line.number else { throw line.invalid("an integer") }
            return .integer(number)
        case UInt8(ascii: "_") where line.content.isEmpty: return .null
        case UInt8(ascii: "$"):
            let length = try line.length(orNull: true)
            return length < 0 ? .null : try string(length).map(Value.bulk)
        case UInt8(ascii: "="):
            guard var text = try string(line.length()) else { return nil }
            guard text.readString(length: 4) == "txt:" else {
                throw ProtocolError("a verbatim string does not begin with 'txt:'")
            }
            return .bulk(text)
        case UInt8(ascii: "*"):
            let count = try line.length(orNull: true)
            return count < 0 ? .null : try values(count, depth: depth).map(Value.array)
        case UInt8(ascii: "~"): return try values(line.length(), depth: depth).map(Value.array)
        case UInt8(ascii: ">"): return try values(line.length(), depth: depth).map(Value.push)
        case UInt8(ascii: "%"): return try values(line.length(), each: 2, depth: depth).map(Value.map)
        default: throw ProtocolError("invalid reply '\(line.shown)'")
        }
    }

    private mutating func values(_ count: Int, each: Int = 1, depth: Int) throws(ProtocolError) -> ValueList? {
        guard depth > 0 || count == 0 else { throw ProtocolError("the reply is nested too deeply", isTooLarge: true) }
        // A value has at least three bytes, so a larger count cannot fit into the limit.
        guard count <= (limit - index) / (3 * each) else { throw tooLong }
        // A declared count must not cause a large allocation before the values arrive.
        var values = ValueList(capacity: min(count * each, 64))
        for _ in 0..<count * each {
            guard try appendValue(to: &values, depth: depth - 1) else { return nil }
        }
        return values
    }

    /// Returns false if more bytes are needed.
    private mutating func appendValue(to values: inout ValueList, depth: Int) throws(ProtocolError) -> Bool {
        let marker = index < bytes.count ? bytes[index] : 0
        // Fast path for strings and nonnegative integers. `value` parses all other elements, including numbers with a
        // sign or leading zeros.
        if marker == UInt8(ascii: "$") || marker == UInt8(ascii: ":"),
            case .number(let number, let end) = LengthLine.read(bytes, at: index), number >= 0, number < .max,
            end <= limit
        {
            index = end
            if marker == UInt8(ascii: ":") {
                values.append(.integer(number))
            } else {
                guard try skipString(number) else { return false }
                values.appendString(at: index - number - 2, length: number, in: buffer)
            }
            return true
        }
        guard let value = try value(depth: depth) else { return false }
        values.append(value)
        return true
    }

    private mutating func string(_ length: Int) throws(ProtocolError) -> ByteBuffer? {
        guard try skipString(length) else { return nil }
        return buffer.getSlice(at: buffer.readerIndex + index - length - 2, length: length)
    }

    /// Skips a string and its CRLF. Returns false if more bytes are needed.
    private mutating func skipString(_ length: Int) throws(ProtocolError) -> Bool {
        guard length <= limit - index - 2 else { throw tooLong }
        guard bytes.count - index >= length + 2 else {
            missing = length + 2 - (bytes.count - index)
            return false
        }
        guard bytes[index + length] == CR, bytes[index + length + 1] == LF else {
            throw ProtocolError("a string does not end with CRLF after its \(length) bytes")
        }
        index += length + 2
        return true
    }

    private mutating func line() throws(ProtocolError) -> Line? {
        let longest = min(Self.maximumLine, limit - index)
        guard let last = bytes[index...].prefix(longest).firstIndex(of: LF) else {
            if bytes.count - index >= longest { throw tooLong }
            return nil
        }
        guard last - index >= 2, bytes[last - 1] == CR else { throw ProtocolError("a line does not end with CRLF") }
        defer { index = last + 1 }
        return Line(
            marker: bytes[index], content: UnsafeRawBufferPointer(rebasing: bytes[index + 1..<last - 1]))
    }

    private var tooLong: ProtocolError { ProtocolError("the reply is too large", isTooLarge: true) }
}

/// A line without CRLF. Must not outlive the buffer's bytes.
private struct Line {
    let marker: UInt8
    /// The line without its marker.
    let content: UnsafeRawBufferPointer

    var text: String { String(decoding: content, as: UTF8.self) }

    /// The number; nil if the content is not one.
    var number: Int? {
        let isNegative = content.first == UInt8(ascii: "-")
        let start = isNegative ? 1 : 0
        // 18 digits cannot overflow.
        guard (1...18).contains(content.count - start) else { return Int(text) }
        var number = 0
        for index in start..<content.count {
            let digit = content[index] &- UInt8(ascii: "0")
            guard digit <= 9 else { return Int(text) }
            number = number &* 10 &+ Int(digit)
        }
        return isNegative ? -number : number
    }

    /// Marker and content, escaped for an error message.
    var shown: String { printableText(CollectionOfOne(marker) + Array(content)) }

    func invalid(_ expected: String) -> ProtocolError { ProtocolError("'\(shown)' is not \(expected)") }

    /// - Parameter orNull: whether -1 is accepted, for a null.
    func length(orNull: Bool = false) throws(ProtocolError) -> Int {
        guard content.first != UInt8(ascii: "+"), let length = number, length >= (orNull ? -1 : 0) else {
            throw invalid("a length")
        }
        return length
    }
}
