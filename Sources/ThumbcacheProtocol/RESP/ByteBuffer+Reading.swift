import NIOCore

extension ByteBuffer {
    /// The next reply, of either version of the protocol, for clients and tests. nil, with nothing taken, when more
    /// bytes are needed: it is then read anew. Its strings share the buffer's storage.
    ///
    /// - Parameters:
    ///   - limit: bytes of a whole reply.
    ///   - depth: arrays and maps inside one another; 1 permits an array of plain values.
    /// - Throws: when what stands in the buffer is no reply that thumbcached sends.
    public mutating func readReply(limit: Int = 1 << 30, depth: Int = 16) throws(ProtocolError) -> Value? {
        var reader = ReplyReader(rest: self, end: readerIndex + limit)
        guard let value = try reader.value(depth: depth) else { return nil }
        self = reader.rest
        return value
    }
}

/// What is left to read of one reply.
private struct ReplyReader {
    var rest: ByteBuffer
    /// Where the limit on a reply's bytes is reached.
    let end: Int

    /// Bytes of a simple string, an error or a number, marker and CRLF included.
    private static var longestLine: Int { 64 << 10 }

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
        default: throw ProtocolError("no reply begins with '\(line.shown)'")
        }
    }

    private mutating func values(_ count: Int, each: Int = 1, depth: Int) throws(ProtocolError) -> [Value]? {
        guard depth > 0 || count == 0 else { throw ProtocolError("a reply of too many levels", isTooLarge: true) }
        // A value has three bytes at least.
        guard count <= (end - rest.readerIndex) / (3 * each) else { throw tooLong }
        var values: [Value] = []
        // More than that is believed when it has come.
        values.reserveCapacity(min(count * each, 64))
        for _ in 0..<count * each {
            guard let value = try value(depth: depth - 1) else { return nil }
            values.append(value)
        }
        return values
    }

    /// So many bytes, and CRLF behind them.
    private mutating func string(_ length: Int) throws(ProtocolError) -> ByteBuffer? {
        guard length <= end - rest.readerIndex - 2 else { throw tooLong }
        guard rest.readableBytes >= length + 2, let bytes = rest.readSlice(length: length) else { return nil }
        guard rest.readInteger(as: UInt16.self) == 0x0D0A else {
            throw ProtocolError("a string does not end with CRLF after its \(length) bytes")
        }
        return bytes
    }

    private mutating func line() throws(ProtocolError) -> Line? {
        let most = min(Self.longestLine, end - rest.readerIndex)
        let (line, length) = rest.withUnsafeReadableBytes { all -> (Line?, Int?) in
            let bytes = all.prefix(most)
            guard let last = bytes.firstIndex(of: LF) else { return (nil, nil) }
            guard last >= 2, bytes[last - 1] == CR else { return (nil, last) }
            return (Line(marker: bytes[0], rest: bytes[1..<last - 1]), last + 1)
        }
        guard let length else {
            if rest.readableBytes >= most { throw tooLong }
            return nil
        }
        guard let line else { throw ProtocolError("a line that does not end with CRLF") }
        rest.moveReaderIndex(forwardBy: length)
        return line
    }

    private var tooLong: ProtocolError { ProtocolError("a reply beyond the limits", isTooLarge: true) }
}

/// A line without its CRLF, apart from its marker. Most lines are lengths, of which no text is made.
private struct Line {
    private enum Content {
        case number(Int)
        case text(String)
    }

    let marker: UInt8
    private let content: Content

    init(marker: UInt8, rest: Slice<UnsafeRawBufferPointer>) {
        self.marker = marker
        content = Self.number(rest).map(Content.number) ?? .text(String(decoding: rest, as: UTF8.self))
    }

    /// Digits, perhaps behind a minus, and nothing else.
    var number: Int? { if case .number(let number) = content { number } else { nil } }

    var text: String {
        switch content {
        case .number(let number): "\(number)"
        case .text(let text): text
        }
    }

    private static func number(_ bytes: Slice<UnsafeRawBufferPointer>) -> Int? {
        let isNegative = bytes.first == UInt8(ascii: "-")
        let digits = isNegative ? bytes.dropFirst() : bytes
        // So many digits overflow nothing; and a number is written as it is when it is made text again.
        guard (1...18).contains(digits.count), digits.first != UInt8(ascii: "0") || !isNegative && digits.count == 1
        else { return nil }
        var number = 0
        for byte in digits {
            guard UInt8(ascii: "0")...UInt8(ascii: "9") ~= byte else { return nil }
            number = number &* 10 &+ Int(byte &- UInt8(ascii: "0"))
        }
        return isNegative ? -number : number
    }

    /// Marker and text, for an error message.
    var shown: String { printableText(CollectionOfOne(marker) + Array(text.utf8)) }

    func invalid(_ expected: String) -> ProtocolError { ProtocolError("'\(shown)' is not \(expected)") }

    /// - Parameter orNull: whether -1 stands here, for a null.
    func length(orNull: Bool = false) throws(ProtocolError) -> Int {
        guard let length = number ?? (text.utf8.first == UInt8(ascii: "+") ? nil : Int(text)),
            length >= (orNull ? -1 : 0)
        else { throw invalid("a length") }
        return length
    }
}
