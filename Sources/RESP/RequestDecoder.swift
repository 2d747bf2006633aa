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

    public init(limits: RequestLimits) {
        self.limits = limits.clamped
    }

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
        guard marker == UInt8(ascii: "*") else { throw notAnArray(marker) }
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
        guard bytes[offset] == UInt8(ascii: "$") else { throw notABulkString(bytes[offset]) }
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
    private func notAnArray(_ byte: UInt8) -> ProtocolError {
        ProtocolError(
            "expected '*', got '\(printableText(CollectionOfOne(byte)))': "
                + "a request is an array of bulk strings, not a line of text")
    }

    private func notABulkString(_ byte: UInt8) -> ProtocolError {
        ProtocolError(
            "expected '$', got '\(printableText(CollectionOfOne(byte)))': "
                + "element \(arguments.count + 1) of the request has to be a bulk string")
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
