import NIOCore

/// Decodes requests, arrays of bulk strings, from the bytes of a connection.
///
/// It keeps its position, so that a request in many pieces costs no more than a whole one. Every declared length is
/// checked against the limits before memory is reserved. Results and errors do not depend on how the bytes were split.
public struct RequestDecoder: Sendable {
    private let limits: RequestLimits
    /// The number of missing arguments of the current frame; 0 between frames.
    private var remaining = 0
    /// The declared length of the current argument; -1 if its line has not been read.
    private var length = -1
    /// The number of bytes read after the line that declares the number of arguments.
    private var offset = 0
    /// The total length of the arguments declared so far.
    private var declaredBytes = 0
    private var arguments = ArgumentList()
    private var failure: ProtocolError?

    /// Whether a frame is incomplete after the last call of ``next(_:)``.
    public private(set) var isInsideFrame = false
    /// The number of bytes known to be missing after the last call of ``next(_:)``: the rest of the declared
    /// argument with its CRLF. 0 if unknown; at most ``RequestLimits/argumentBytes`` + 2.
    public private(set) var missingBytes = 0

    public init(limits: RequestLimits) { self.limits = limits.clamped }

    /// Removes the next request from the buffer; returns nil if more bytes are needed. Between calls, bytes may only be
    /// appended to the buffer. Up to eight arguments need no allocation.
    /// - Throws: ``ProtocolError`` if the bytes are not a request. Every later call throws the same error.
    public mutating func next(_ buffer: inout ByteBuffer) throws(ProtocolError) -> Request? {
        if let failure { throw failure }
        missingBytes = 0
        let isComplete: Bool
        do {
            isComplete = try readCount(&buffer) ? try readArguments(buffer) : false
        } catch {
            failure = error
            throw error
        }
        guard isComplete, let frame = buffer.readSlice(length: offset) else {
            isInsideFrame = remaining > 0 || buffer.readableBytes > 0
            return nil
        }
        let request = Request(frame: frame, arguments: arguments)
        arguments.removeAll()
        offset = 0
        declaredBytes = 0
        isInsideFrame = false
        return request
    }

    /// Reads the line that declares the number of arguments. Returns whether it has been read, now or earlier.
    private mutating func readCount(_ buffer: inout ByteBuffer) throws(ProtocolError) -> Bool {
        // Empty arrays are skipped as in Redis, and so are empty lines: `redis-cli --pipe` sends one after its input.
        while remaining == 0 {
            let line = try buffer.withUnsafeReadableBytes { bytes throws(ProtocolError) in try countLine(bytes) }
            guard let line else { return false }
            buffer.moveReaderIndex(forwardBy: line.end)
            remaining = max(line.count, 0)
        }
        return true
    }

    private func countLine(_ bytes: UnsafeRawBufferPointer) throws(ProtocolError) -> (count: Int, end: Int)? {
        guard let marker = bytes.first else { return nil }
        if marker == CR {
            guard bytes.count > 1 else { return nil }
            if bytes[1] == LF { return (0, 2) }
        }
        guard marker == UInt8(ascii: "*") else {
            throw unexpected(marker, insteadOf: "*", "a request is an array of bulk strings, not a line of text")
        }
        switch LengthLine.read(bytes, at: 0) {
        case .incomplete: return nil
        case .number(let count, let end) where count <= limits.arguments: return (count, end)
        case .number(_, let end): throw tooManyArguments(bytes[1..<end - 2])
        case .invalid(let text): throw invalidCount(bytes[text])
        }
    }

    /// Continues to read arguments. Returns whether all are complete.
    private mutating func readArguments(_ buffer: ByteBuffer) throws(ProtocolError) -> Bool {
        try buffer.withUnsafeReadableBytes { bytes throws(ProtocolError) in
            while remaining > 0 {
                if length < 0 {
                    guard let declared = try readLength(bytes) else { return false }
                    length = declared
                }
                let end = offset &+ length
                guard bytes.count &- end >= 2 else {
                    missingBytes = end &+ 2 &- bytes.count
                    return false
                }
                guard bytes[end] == CR, bytes[end &+ 1] == LF else { throw missingEnd() }
                arguments.append(ArgumentSpan(offset: offset, length: length))
                offset = end &+ 2
                length = -1
                remaining &-= 1
            }
            return true
        }
    }

    private mutating func readLength(_ bytes: UnsafeRawBufferPointer) throws(ProtocolError) -> Int? {
        guard offset < bytes.count else { return nil }
        guard bytes[offset] == UInt8(ascii: "$") else {
            throw unexpected(bytes[offset], insteadOf: "$", "\(current) must be a bulk string")
        }
        switch LengthLine.read(bytes, at: offset) {
        case .incomplete: return nil
        case .number(-1, _): throw invalidLength("-1".utf8)
        case .number(let length, let end) where length <= limits.argumentBytes:
            guard declaredBytes &+ length <= limits.payloadBytes else { throw frameTooLarge(length) }
            declaredBytes &+= length
            offset = end
            return length
        case .number(_, let end): throw argumentTooLarge(bytes[offset + 1..<end - 2])
        case .invalid(let text): throw invalidLength(bytes[text])
        }
    }
}

/// Error messages. Arguments are counted from 1, after the command's name, as in errors of commands.
extension RequestDecoder {
    private var current: String { arguments.count == 0 ? "the command's name" : "argument \(arguments.count)" }

    private func unexpected(_ byte: UInt8, insteadOf marker: String, _ rule: String) -> ProtocolError {
        ProtocolError("expected '\(marker)', got '\(printableText(CollectionOfOne(byte)))': \(rule)")
    }

    private func invalidCount(_ text: some Collection<UInt8>) -> ProtocolError {
        ProtocolError(
            "invalid array length '\(LengthLine.invalidPrefix(of: text))': "
                + "expected a decimal number from 0 to \(limits.arguments) and CRLF")
    }

    private func tooManyArguments(_ text: some Collection<UInt8>) -> ProtocolError {
        ProtocolError("a request of \(printableText(text)) arguments: at most \(limits.arguments) are accepted")
    }

    private func invalidLength(_ text: some Collection<UInt8>) -> ProtocolError {
        ProtocolError(
            "invalid length '\(LengthLine.invalidPrefix(of: text))' of \(current): "
                + "expected a decimal number from 0 to \(limits.argumentBytes) and CRLF")
    }

    private func argumentTooLarge(_ text: some Collection<UInt8>) -> ProtocolError {
        ProtocolError(
            "\(current) has \(printableText(text)) bytes: "
                + "at most \(limits.argumentBytes) are accepted",
            isTooLarge: true)
    }

    private func frameTooLarge(_ length: Int) -> ProtocolError {
        ProtocolError(
            "the request has more than \(declaredBytes + length - 1) bytes: "
                + "at most \(limits.payloadBytes) are accepted",
            isTooLarge: true)
    }

    private func missingEnd() -> ProtocolError {
        ProtocolError("\(current) does not end with CRLF after its \(length) bytes")
    }
}

/// A line with a length or an integer: digits and CRLF, after a marker that the caller has checked. Stricter than
/// Redis: no sign except in `-1`, no leading zero, no space, and no line feed alone.
enum LengthLine {
    /// Maximum length in bytes, including marker and CRLF. A 64-bit number needs 23.
    static let maximumLength = 32

    enum Outcome {
        /// A number, at least -1; `Int.max` for all larger ones. `end` is the offset after the CRLF.
        case number(Int, end: Int)
        case incomplete
        /// `text` is its range without marker and CRLF.
        case invalid(text: Range<Int>)
    }

    /// Reads the line whose marker is at `start`. The result does not depend on the bytes after the line.
    static func read(_ bytes: UnsafeRawBufferPointer, at start: Int) -> Outcome {
        var index = start &+ 1
        var value = 0
        while index < bytes.count {
            let digit = bytes[index] &- UInt8(ascii: "0")
            guard digit <= 9 else { break }
            // 18 digits cannot overflow; longer lines take the slow path.
            guard index &- start <= 18 else { return readSlowly(bytes, at: start) }
            value = value &* 10 &+ Int(digit)
            index &+= 1
        }
        let digits = index &- start &- 1
        guard digits > 0, index &+ 1 < bytes.count, bytes[index] == CR, bytes[index &+ 1] == LF,
            digits == 1 || bytes[start &+ 1] != UInt8(ascii: "0")
        else { return readSlowly(bytes, at: start) }
        return .number(value, end: index &+ 2)
    }

    /// Handles incomplete lines, negative and very large numbers, and invalid lines.
    private static func readSlowly(_ bytes: UnsafeRawBufferPointer, at start: Int) -> Outcome {
        let stop = min(bytes.count, start + maximumLength)
        guard let end = bytes[start..<stop].firstIndex(of: LF) else {
            return stop == start + maximumLength ? .invalid(text: start + 1..<stop) : .incomplete
        }
        guard end > start + 1, bytes[end - 1] == CR else { return .invalid(text: start + 1..<end) }
        let text = start + 1..<end - 1
        let digits = bytes[text]
        if digits.elementsEqual("-1".utf8) { return .number(-1, end: end + 1) }
        let number = wholeNumber(UnsafeRawBufferPointer(rebasing: digits))
        return number.map { .number($0, end: end + 1) } ?? .invalid(text: text)
    }

    /// Returns the invalid line up to its first invalid byte. The rest is not shown, since after a framing error it may
    /// contain anything, such as a token.
    static func invalidPrefix(of text: some Collection<UInt8>) -> String {
        let signs: [UInt8] = [UInt8(ascii: "-"), UInt8(ascii: "+")]
        let unsigned = text.first.map(signs.contains) == true ? text.dropFirst() : text[...]
        let wrong = unsigned.firstIndex { $0 &- UInt8(ascii: "0") > 9 }
        let shown = wrong.map { text[...$0] } ?? text[...]
        return printableText(shown) + (shown.count < text.count ? "..." : "")
    }
}

/// Parses at most 32 decimal digits without sign or leading zeros. Returns `Int.max` on overflow and nil for anything
/// else. It is not generic, because calls from other modules would go through witness tables, at 400 instructions per
/// number.
public func wholeNumber(_ digits: UnsafeRawBufferPointer) -> Int? {
    guard let first = digits.first, digits.count <= 32, digits.count == 1 || first != UInt8(ascii: "0") else {
        return nil
    }
    var value = 0
    for byte in digits {
        let digit = byte &- UInt8(ascii: "0")
        guard digit <= 9 else { return nil }
        let (tens, isOver) = value.multipliedReportingOverflow(by: 10)
        let (sum, isOverToo) = tens.addingReportingOverflow(Int(digit))
        value = isOver || isOverToo || value == .max ? .max : sum
    }
    return value
}

let CR = UInt8(ascii: "\r")
let LF = UInt8(ascii: "\n")
