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
        var reader = ReplyParser(rest: self, end: readerIndex + limit)
        guard let value = try reader.value(depth: depth) else {
            missing = reader.missing
            return nil
        }
        self = reader.rest
        return value
    }
}

private struct ReplyParser {
    var rest: ByteBuffer
    /// The index at which the size limit is reached.
    let end: Int
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
            guard let number = line.number ?? Int(line.text) else { throw line.invalid("an integer") }
            return .integer(number)
        case UInt8(ascii: "_") where line.text.isEmpty: return .null
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

    private mutating func values(_ count: Int, each: Int = 1, depth: Int) throws(ProtocolError) -> [Value]? {
        guard depth > 0 || count == 0 else { throw ProtocolError("the reply is nested too deeply", isTooLarge: true) }
        // A value has at least three bytes, so a larger count cannot fit into the limit.
        guard count <= (end - rest.readerIndex) / (3 * each) else { throw tooLong }
        var values: [Value] = []
        // A declared count must not cause a large allocation before the values arrive.
        values.reserveCapacity(min(count * each, 64))
        for _ in 0..<count * each {
            guard let value = try value(depth: depth - 1) else { return nil }
            values.append(value)
        }
        return values
    }

    private mutating func string(_ length: Int) throws(ProtocolError) -> ByteBuffer? {
        guard length <= end - rest.readerIndex - 2 else { throw tooLong }
        guard rest.readableBytes >= length + 2, let bytes = rest.readSlice(length: length) else {
            missing = length + 2 - rest.readableBytes
            return nil
        }
        guard rest.readInteger(as: UInt16.self) == 0x0D0A else {
            throw ProtocolError("a string does not end with CRLF after its \(length) bytes")
        }
        return bytes
    }

    private mutating func line() throws(ProtocolError) -> Line? {
        let most = min(Self.maximumLine, end - rest.readerIndex)
        let (line, length) = rest.withUnsafeReadableBytes { all -> (Line?, Int?) in
            guard let last = all.prefix(most).firstIndex(of: LF) else { return (nil, nil) }
            guard last >= 2, all[last - 1] == CR else { return (nil, last) }
            return (Line(marker: all[0], rest: UnsafeRawBufferPointer(rebasing: all[1..<last - 1])), last + 1)
        }
        guard let length else {
            if rest.readableBytes >= most { throw tooLong }
            return nil
        }
        guard let line else { throw ProtocolError("a line does not end with CRLF") }
        rest.moveReaderIndex(forwardBy: length)
        return line
    }

    private var tooLong: ProtocolError { ProtocolError("the reply is too large", isTooLarge: true) }
}

/// A line without CRLF, split into marker and content. Most lines are numbers, for which no string is allocated.
private struct Line {
    private enum Content {
        case number(Int)
        case text(String)
    }

    let marker: UInt8
    private let content: Content

    init(marker: UInt8, rest: UnsafeRawBufferPointer) {
        self.marker = marker
        content = Self.number(rest).map(Content.number) ?? .text(String(decoding: rest, as: UTF8.self))
    }

    /// The number, if the line is only digits with an optional minus.
    var number: Int? { if case .number(let number) = content { number } else { nil } }

    var text: String {
        switch content {
        case .number(let number): "\(number)"
        case .text(let text): text
        }
    }

    private static func number(_ bytes: UnsafeRawBufferPointer) -> Int? {
        let isNegative = bytes.first == UInt8(ascii: "-")
        let start = isNegative ? 1 : 0
        let count = bytes.count - start
        // 18 digits cannot overflow. Leading zeros are excluded so that `text` reproduces the line.
        guard (1...18).contains(count), bytes[start] != UInt8(ascii: "0") || !isNegative && count == 1 else {
            return nil
        }
        var number = 0
        for index in start..<bytes.count {
            let digit = bytes[index] &- UInt8(ascii: "0")
            guard digit <= 9 else { return nil }
            number = number &* 10 &+ Int(digit)
        }
        return isNegative ? -number : number
    }

    /// Marker and text, escaped for an error message.
    var shown: String { printableText(CollectionOfOne(marker) + Array(text.utf8)) }

    func invalid(_ expected: String) -> ProtocolError { ProtocolError("'\(shown)' is not \(expected)") }

    /// - Parameter orNull: whether -1 is accepted, for a null.
    func length(orNull: Bool = false) throws(ProtocolError) -> Int {
        guard let length = number ?? (text.utf8.first == UInt8(ascii: "+") ? nil : Int(text)),
            length >= (orNull ? -1 : 0)
        else { throw invalid("a length") }
        return length
    }
}
