import LinuxSupport
import NIOCore
import RESP

/// The options of a request, read one after another: each word at most once, with as many values as it takes.
struct Options {
    private let request: Request
    private let command: CommandName
    private let limits: CommandLimits
    private var index: Int
    /// One bit for each option that has been read.
    private var seen: UInt32 = 0
    private var current: Option = .size

    /// - Parameter start: the index behind the positional arguments.
    init(_ request: Request, from start: Int, of command: CommandName, _ limits: CommandLimits) {
        self.request = request
        self.command = command
        self.limits = limits
        index = start
    }

    /// The next option; nil at the end.
    mutating func next() throws(CommandError) -> Option? {
        guard index < request.count else { return nil }
        guard let option = Option(request.withBytes(of: index) { Word($0) }) else {
            // Not shown: what stands where an option is due may well be an id or a token.
            throw CommandError(.err, "bad option (argument \(index)) for '\(command.rawValue)': \(expected)")
        }
        let bit = UInt32(1) << UInt32(option.rawValue)
        guard seen & bit == 0 else {
            throw CommandError(.err, "option \(option.name) of '\(command.rawValue)' is given twice")
        }
        seen |= bit
        current = option
        index += 1
        return option
    }

    /// What to throw for an option that this command does not take.
    func notTaken() -> CommandError {
        CommandError(.err, "bad option '\(current.name)' for '\(command.rawValue)': \(expected)")
    }

    private var expected: String {
        let names = command.specification.options
        guard let last = names.last else { return "it takes none" }
        return "expected " + (names.count == 1 ? last : names.dropLast().joined(separator: ", ") + " or " + last)
    }

    /// Moves past the value of the current option.
    private mutating func takeValue() throws(CommandError) -> Int {
        guard index < request.count else {
            throw CommandError(.err, "option \(current.name) of '\(command.rawValue)' lacks its value")
        }
        defer { index += 1 }
        return index
    }
}

/// The values that options take.
extension Options {
    mutating func value() throws(CommandError) -> ByteBuffer {
        request[try takeValue()]
    }

    mutating func size() throws(CommandError) -> UInt16 {
        UInt16(try number(in: CommandLimits.size, "pixels"))
    }

    mutating func wait() throws(CommandError) -> Int64 {
        Int64(try number(in: CommandLimits.wait, "milliseconds"))
    }

    mutating func ttl() throws(CommandError) -> Int64 {
        Int64(try number(in: CommandLimits.ttl, "seconds"))
    }

    mutating func uid() throws(CommandError) -> UInt32 {
        UInt32(try number(in: CommandLimits.uid, "a user of this machine"))
    }

    private mutating func number(in range: ClosedRange<Int>, _ what: String) throws(CommandError) -> Int {
        let index = try takeValue()
        let number = request.withBytes(of: index) { wholeNumber($0) }
        guard let number, range.contains(number) else {
            let shown = request.withBytes(of: index) { printableText($0) }
            throw CommandError(
                .err,
                "bad \(current.name) '\(shown)': "
                    + "expected a whole number (\(what)) from \(range.lowerBound) to \(range.upperBound)")
        }
        return number
    }

    mutating func id(_ what: String) throws(CommandError) -> ByteBuffer {
        try request.id(at: try takeValue(), what, limits)
    }

    /// The next value, if its bytes are right; else an error that says what was expected.
    private mutating func value(
        _ isRight: (UnsafeRawBufferPointer) -> Bool, expected: @autoclosure () -> String
    ) throws(CommandError) -> ByteBuffer {
        let index = try takeValue()
        guard request.withBytes(of: index, isRight) else {
            throw CommandError(.err, "bad \(current.name): expected \(expected())")
        }
        return request[index]
    }

    mutating func digest() throws(CommandError) -> ByteBuffer {
        try value(
            { $0.count == 64 && Hex.isLowerCase($0) },
            expected: "64 lower-case hexadecimal digits, the SHA-256 of an image")
    }

    mutating func url() throws(CommandError) -> String {
        let url = try value(
            { 1...CommandLimits.url ~= $0.count && $0.allSatisfy { 0x21...0x7E ~= $0 } },
            expected: "1 to \(CommandLimits.url) printable ASCII characters without spaces")
        return String(buffer: url)
    }

    mutating func originName() throws(CommandError) -> String {
        let name = try value(
            { bytes in
                1...CommandLimits.name ~= bytes.count && bytes.allSatisfy { $0 >= 0x20 && $0 != 0x7F }
                    && String(validating: bytes, as: UTF8.self) != nil
            }, expected: "the name of a configured origin, at most \(CommandLimits.name) bytes")
        return String(buffer: name)
    }

    mutating func token() throws(CommandError) -> ByteBuffer {
        let limit = limits.token
        return try value(
            { $0.count <= max(limit, 1) && TokenText.isBearer($0) },
            expected: "1 to \(limit) characters of RFC 6750 (letters, digits, - . _ ~ + / and then =)")
    }

    /// It is sent to a token endpoint only, form-encoded.
    mutating func refreshToken() throws(CommandError) -> ByteBuffer {
        let limit = limits.token
        return try value(
            { $0.count <= max(limit, 1) && TokenText.isVisible($0) },
            expected: "1 to \(limit) printable ASCII characters (RFC 6749)")
    }

    mutating func connectionName() throws(CommandError) -> ByteBuffer {
        try request.connectionName(at: try takeValue(), current.name)
    }
}
