import NIOCore

/// Reads requests, arrays of bulk strings, from what a connection has received so far.
///
/// It remembers how far it has read, so that a request that arrives in many pieces costs as much as one that arrives
/// whole. Every declared length is checked against the limits when its line has been read, before anything is set aside
/// for it. What is decoded, and every error, depends only on the bytes, never on how they were cut into pieces.
public struct RequestDecoder: Sendable {
    private let limits: RequestLimits
    /// Bulk strings of the current frame still to come; 0 between frames.
    private var remaining = 0
    /// Length of the bulk string whose line has been read; -1 when a line is due.
    private var length = -1
    /// How far the arguments have been read: bytes behind the line that said how many there are.
    private var offset = 0
    /// Bytes of all bulk strings that the frame has declared so far.
    private var declaredBytes = 0
    private var arguments = ArgumentList()
    private var failure: ProtocolError?

    /// Whether a frame has begun and is not complete, as of the last call of ``next(_:)``.
    public private(set) var isInsideFrame = false
    /// Bytes known to be still needed, as of the last call of ``next(_:)``: the rest of the bulk string that has been
    /// declared, with its CRLF. 0 if unknown; never more than ``RequestLimits/argumentBytes`` and 2.
    public private(set) var missingBytes = 0

    public init(limits: RequestLimits) { self.limits = limits.clamped }

    /// The next request, taken from the buffer; nil when more bytes are needed.
    ///
    /// Between calls bytes may only be appended to the buffer. Up to eight arguments cost no allocation.
    ///
    /// - Throws: when what stands in the buffer is no request; every later call throws the same.
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

    /// Takes the line that says how many arguments follow; true when it has been read, now or earlier.
    private mutating func readCount(_ buffer: inout ByteBuffer) throws(ProtocolError) -> Bool {
        // Empty arrays are passed over, as Redis does, and empty lines: `redis-cli --pipe` puts one behind its input.
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

    /// Reads on in the arguments; true when all are there.
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
            let place = "element \(arguments.count + 1) of the request"
            throw unexpected(bytes[offset], insteadOf: "$", "\(place) has to be a bulk string")
        }
        switch LengthLine.read(bytes, at: offset) {
        case .incomplete: return nil
        case .number(-1, _): throw invalidLength("-1".utf8)
        case .number(let length, let end) where length <= limits.argumentBytes:
            guard declaredBytes &+ length <= limits.frameBytes else { throw frameTooLarge(length) }
            declaredBytes &+= length
            offset = end
            return length
        case .number(_, let end): throw argumentTooLarge(bytes[offset + 1..<end - 2])
        case .invalid(let text): throw invalidLength(bytes[text])
        }
    }
}

/// What each kind of error says. Bulk strings are counted from 1, the command's name.
extension RequestDecoder {
    private func unexpected(_ byte: UInt8, insteadOf marker: String, _ rule: String) -> ProtocolError {
        ProtocolError("expected '\(marker)', got '\(printableText(CollectionOfOne(byte)))': \(rule)")
    }

    private func invalidCount(_ text: some Collection<UInt8>) -> ProtocolError {
        ProtocolError(
            "invalid array length '\(LengthLine.culprit(in: text))': "
                + "expected a decimal number from 0 to \(limits.arguments) and CRLF")
    }

    private func tooManyArguments(_ text: some Collection<UInt8>) -> ProtocolError {
        ProtocolError("an array of \(printableText(text)) elements: at most \(limits.arguments) are accepted")
    }

    private func invalidLength(_ text: some Collection<UInt8>) -> ProtocolError {
        ProtocolError(
            "invalid length '\(LengthLine.culprit(in: text))' of bulk string \(arguments.count + 1): "
                + "expected a decimal number from 0 to \(limits.argumentBytes) and CRLF")
    }

    private func argumentTooLarge(_ text: some Collection<UInt8>) -> ProtocolError {
        ProtocolError(
            "bulk string \(arguments.count + 1) has \(printableText(text)) bytes: "
                + "at most \(limits.argumentBytes) are accepted",
            isTooLarge: true)
    }

    private func frameTooLarge(_ length: Int) -> ProtocolError {
        ProtocolError(
            "the request has more than \(declaredBytes + length - 1) bytes: "
                + "at most \(limits.frameBytes) are accepted",
            isTooLarge: true)
    }

    private func missingEnd() -> ProtocolError {
        ProtocolError("bulk string \(arguments.count + 1) does not end with CRLF after its \(length) bytes")
    }
}

/// The line that declares a length: digits up to CRLF, after a marker that the caller has looked at.
///
/// Stricter than Redis: no sign but in `-1`, no leading zero, no space, and no bare line feed.
enum LengthLine {
    /// Bytes a line may have, marker and CRLF included. A 64-bit number takes 23.
    static let longest = 32

    enum Outcome {
        /// A number, -1 or above; `Int.max` stands for all that are larger. `end` is the offset behind the CRLF.
        case number(Int, end: Int)
        case incomplete
        /// No such line. `text` is what stands in its place, without marker and CRLF.
        case invalid(text: Range<Int>)
    }

    /// Reads the line whose marker stands at `start`. What it answers does not depend on how much lies behind the line.
    static func read(_ bytes: UnsafeRawBufferPointer, at start: Int) -> Outcome {
        var index = start &+ 1
        var value = 0
        while index < bytes.count {
            let digit = bytes[index] &- UInt8(ascii: "0")
            guard digit <= 9 else { break }
            // Eighteen digits cannot overflow; a line that has more of them is read with care.
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

    /// Everything but the usual: a line that is not there yet, a negative or enormous number, no number at all.
    private static func readSlowly(_ bytes: UnsafeRawBufferPointer, at start: Int) -> Outcome {
        let stop = min(bytes.count, start + longest)
        guard let end = bytes[start..<stop].firstIndex(of: LF) else {
            return stop == start + longest ? .invalid(text: start + 1..<stop) : .incomplete
        }
        guard end > start + 1, bytes[end - 1] == CR else { return .invalid(text: start + 1..<end) }
        let text = start + 1..<end - 1
        let digits = bytes[text]
        if digits.elementsEqual("-1".utf8) { return .number(-1, end: end + 1) }
        let number = wholeNumber(UnsafeRawBufferPointer(rebasing: digits))
        return number.map { .number($0, end: end + 1) } ?? .invalid(text: text)
    }

    /// The part of an invalid line that shows what is wrong with it: all up to the first byte that no number has.
    /// The rest stays unsaid, since a client that lost count may have put anything there, a token too.
    static func culprit(in text: some Collection<UInt8>) -> String {
        let signs: [UInt8] = [UInt8(ascii: "-"), UInt8(ascii: "+")]
        let unsigned = text.first.map(signs.contains) == true ? text.dropFirst() : text[...]
        let wrong = unsigned.firstIndex { $0 &- UInt8(ascii: "0") > 9 }
        let shown = wrong.map { text[...$0] } ?? text[...]
        return printableText(shown) + (shown.count < text.count ? "..." : "")
    }
}

/// A number of at most 32 decimal digits, without sign or leading zeros; `Int.max` stands for all that do not fit; else
/// nil. Not generic: another module would call it through witness tables, at 400 instructions a number.
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
