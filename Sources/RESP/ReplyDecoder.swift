import NIOCore

/// Reads replies of either version of the protocol, for clients and tests.
///
/// Whatever is complete is taken from the buffer at once and kept here, so that a long reply is read only once. Strings
/// are copied: a small value never keeps a large buffer alive. Attributes, which say something about the value
/// behind them, are passed over. Streamed strings and aggregates, which thumbcached never sends, are errors.
public struct ReplyDecoder: Sendable {
    private let limits: ReplyLimits
    /// The aggregates begun and not complete, the outermost first.
    private var open: [Aggregate] = []
    /// A string whose length has been read and whose bytes are due.
    private var due: (kind: StringKind, length: Int)?
    /// How far the line at the head of the buffer has been searched for its end.
    private var searched = 0
    /// Values declared so far, the reply itself included.
    private var values = 1
    private var replyBytes = 0
    private var failure: ProtocolError?

    public init(limits: ReplyLimits = ReplyLimits()) {
        self.limits = limits
    }

    /// The next reply, taken from the buffer; nil when more bytes are needed. Takes bytes in either case.
    ///
    /// - Throws: when what stands in the buffer is no reply; every later call throws the same.
    public mutating func next(_ buffer: inout ByteBuffer) throws(ProtocolError) -> Value? {
        if let failure { throw failure }
        do {
            while let value = try readValue(&buffer) {
                guard let reply = complete(with: value) else { continue }
                values = 1
                replyBytes = 0
                return reply
            }
            return nil
        } catch {
            failure = error
            throw error
        }
    }

    /// Puts a value where it belongs; returns the reply when that was the last value missing from it.
    private mutating func complete(with value: Value) -> Value? {
        var value = value
        while var innermost = open.popLast() {
            innermost.elements.append(value)
            guard innermost.elements.count == innermost.count else {
                open.append(innermost)
                return nil
            }
            guard let aggregate = innermost.value else { return nil }
            value = aggregate
        }
        return value
    }

    /// Reads on until one value that is no aggregate, or one that is empty, is complete; nil when bytes are missing.
    private mutating func readValue(_ buffer: inout ByteBuffer) throws(ProtocolError) -> Value? {
        while true {
            if let due { return try readString(due.kind, due.length, &buffer) }
            guard let line = try readLine(&buffer) else { return nil }
            if let value = try read(line) { return value }
        }
    }

    /// A value of one line; nil when it only announces a string or an aggregate, which is then noted.
    private mutating func read(_ line: Line) throws(ProtocolError) -> Value? {
        switch line.marker {
        case UInt8(ascii: "+"): return .simpleString(line.text)
        case UInt8(ascii: "-"): return Self.error(line.text)
        case UInt8(ascii: ":"): return .integer(try line.integer())
        case UInt8(ascii: "_") where line.text.isEmpty: return .null
        case UInt8(ascii: "#") where line.text == "t": return .boolean(true)
        case UInt8(ascii: "#") where line.text == "f": return .boolean(false)
        case UInt8(ascii: ","): return .double(try line.double())
        case UInt8(ascii: "("): return .bigNumber(try line.bigNumber())
        case UInt8(ascii: "$"): return try announce(.bulk, line)
        case UInt8(ascii: "="): return try announce(.verbatim, line)
        case UInt8(ascii: "!"): return try announce(.error, line)
        case UInt8(ascii: "*"): return try begin(.array, line)
        case UInt8(ascii: "%"): return try begin(.map, line)
        case UInt8(ascii: "~"): return try begin(.set, line)
        case UInt8(ascii: ">"): return try begin(.push, line)
        case UInt8(ascii: "|"): return try begin(.attribute, line)
        default: throw ProtocolError("no reply begins with '\(line.shown)'")
        }
    }

    private mutating func announce(_ kind: StringKind, _ line: Line) throws(ProtocolError) -> Value? {
        let length = try line.length()
        if length == -1, kind == .bulk { return .null }
        guard length >= (kind == .verbatim ? 4 : 0) else { throw line.invalid("a length") }
        guard length <= limits.bulkBytes else {
            throw ProtocolError("a string of \(length) bytes: at most \(limits.bulkBytes)", isTooLarge: true)
        }
        try count(bytes: length + 2)
        due = (kind, length)
        return nil
    }

    private mutating func readString(
        _ kind: StringKind, _ length: Int, _ buffer: inout ByteBuffer
    ) throws(ProtocolError) -> Value? {
        guard buffer.readableBytes >= length + 2 else { return nil }
        let end = buffer.readerIndex + length
        guard buffer.getInteger(at: end, as: UInt16.self) == 0x0D0A else {
            throw ProtocolError("a string does not end with CRLF after its \(length) bytes")
        }
        var bytes = ByteBuffer(bytes: buffer.readableBytesView.prefix(length))
        buffer.moveReaderIndex(forwardBy: length + 2)
        due = nil
        if kind == .bulk { return .bulk(bytes) }
        if kind == .error { return Self.error(String(buffer: bytes)) }
        guard let format = bytes.readString(length: 3), bytes.readInteger(as: UInt8.self) == UInt8(ascii: ":") else {
            throw ProtocolError("a verbatim string does not begin with a format of three letters and a colon")
        }
        return .verbatim(format: format, text: bytes)
    }

    private mutating func begin(_ kind: Aggregate.Kind, _ line: Line) throws(ProtocolError) -> Value? {
        let count = try line.length()
        if count == -1, kind == .array { return .null }
        guard count >= 0 else { throw line.invalid("a length") }
        // Values count when they are declared; an attribute, which is no element of anything, counts as one more.
        let perEntry = kind == .map || kind == .attribute ? 2 : 1
        values += kind == .attribute ? 1 : 0
        guard count <= (limits.values - values) / perEntry, values <= limits.values else {
            throw ProtocolError("a reply of more than \(limits.values) values", isTooLarge: true)
        }
        values += count * perEntry
        let aggregate = Aggregate(kind: kind, count: count * perEntry)
        if count == 0 { return aggregate.value }
        guard open.count < limits.depth else {
            throw ProtocolError("a reply of more than \(limits.depth) levels", isTooLarge: true)
        }
        open.append(aggregate)
        return nil
    }

    private mutating func readLine(_ buffer: inout ByteBuffer) throws(ProtocolError) -> Line? {
        let view = buffer.readableBytesView
        guard let end = view.dropFirst(searched).firstIndex(of: LF) else {
            searched = view.count
            guard searched < limits.lineBytes else { throw tooLongLine() }
            return nil
        }
        let length = end - view.startIndex + 1
        guard length <= limits.lineBytes else { throw tooLongLine() }
        guard length >= 3, view[end - 1] == CR, let marker = view.first else {
            throw ProtocolError("a line that does not end with CRLF")
        }
        try count(bytes: length)
        let text = String(decoding: view[view.startIndex + 1..<end - 1], as: UTF8.self)
        buffer.moveReaderIndex(forwardBy: length)
        searched = 0
        return Line(marker: marker, text: text)
    }

    private mutating func count(bytes: Int) throws(ProtocolError) {
        replyBytes += bytes
        guard replyBytes <= limits.replyBytes else {
            throw ProtocolError("a reply of more than \(limits.replyBytes) bytes", isTooLarge: true)
        }
    }

    private func tooLongLine() -> ProtocolError {
        ProtocolError("a line of more than \(limits.lineBytes) bytes", isTooLarge: true)
    }

    private static func error(_ text: String) -> Value {
        guard let space = text.firstIndex(of: " ") else { return .error(code: text, message: "") }
        return .error(code: String(text[..<space]), message: String(text[text.index(after: space)...]))
    }
}

/// What is sent as a length and as many bytes.
private enum StringKind: Sendable { case bulk, verbatim, error }

/// An array, map, set, push or attribute whose elements are being read.
private struct Aggregate: Sendable {
    enum Kind: Sendable { case array, map, set, push, attribute }

    let kind: Kind
    /// Values that belong to it; two for an entry of a map.
    let count: Int
    var elements: [Value] = []

    init(kind: Kind, count: Int) {
        self.kind = kind
        self.count = count
    }

    /// What it amounts to; nil for an attribute, which is passed over.
    var value: Value? {
        switch kind {
        case .array: .array(elements)
        case .set: .set(elements)
        case .push: .push(elements)
        case .map:
            .map(stride(from: 0, to: elements.count, by: 2).map { (key: elements[$0], value: elements[$0 + 1]) })
        case .attribute: nil
        }
    }
}

/// A line without its CRLF, apart from its marker.
private struct Line {
    let marker: UInt8
    let text: String

    /// Marker and text, for an error message.
    var shown: String { printableText(CollectionOfOne(marker) + Array(text.utf8)) }

    func invalid(_ expected: String) -> ProtocolError {
        ProtocolError("'\(shown)' is not \(expected)")
    }

    func length() throws(ProtocolError) -> Int {
        guard let first = text.utf8.first, first != UInt8(ascii: "+"), let length = Int(text), length >= -1 else {
            throw invalid("a length")
        }
        return length
    }

    func integer() throws(ProtocolError) -> Int {
        guard let value = Int(text) else { throw invalid("an integer") }
        return value
    }

    func double() throws(ProtocolError) -> Double {
        guard let value = Double(text) else { throw invalid("a number") }
        return value
    }

    func bigNumber() throws(ProtocolError) -> String {
        let digits = text.utf8.first == UInt8(ascii: "-") ? text.utf8.dropFirst() : text.utf8[...]
        guard !digits.isEmpty, digits.allSatisfy({ $0 &- UInt8(ascii: "0") <= 9 }) else {
            throw invalid("a whole number")
        }
        return text
    }
}
