import LinuxSupport
import NIOCore

/// The options that may follow the positional arguments of a command.
enum Option: UInt8, CaseIterable, Sendable {
    case size, fit, format, url, wait, cached, noWait, ifNot, meta, ttl, uid
    case session, hold, origin, token, refresh, auth, setName

    private static let packedNames = allCases.map { PackedName($0.name) }

    init?(_ name: PackedName) {
        guard let index = Self.packedNames.firstIndex(of: name) else { return nil }
        self.init(rawValue: UInt8(index))
    }

    var name: String { "\(self)".uppercased() }
}

/// Parsing of option values.
extension Arguments {
    mutating func value() throws(CommandError) -> ByteBuffer {
        try requireValue()
        return next()
    }

    /// Reads a value and validates its bytes. The error contains `expected`.
    private mutating func value(
        _ isRight: (UnsafeRawBufferPointer) -> Bool, expected: @autoclosure () -> String
    ) throws(CommandError) -> ByteBuffer {
        let value = try value()
        guard value.withUnsafeReadableBytes(isRight) else {
            throw CommandError(.err, "bad \(current.name): expected \(expected())")
        }
        return value
    }

    private mutating func number(in range: ClosedRange<Int>, _ what: String) throws(CommandError) -> Int {
        try requireValue()
        guard let number = request.withBytes(of: index, { wholeNumber($0) }), range.contains(number) else {
            throw CommandError(
                .err,
                "bad \(current.name) '\(request.shown(at: index))': "
                    + "expected a whole number (\(what)) from \(range.lowerBound) to \(range.upperBound)")
        }
        index += 1
        return number
    }

    mutating func size() throws(CommandError) -> Int { try number(in: CommandLimits.size, "pixels") }
    /// Reads a case-insensitive word of an enumeration.
    mutating func word<Choice: RawRepresentable<String> & CaseIterable>() throws(CommandError) -> Choice {
        try requireValue()
        let shown = request.shown(at: index)
        guard let choice = Choice(rawValue: String(buffer: next()).lowercased()) else {
            let words = Choice.allCases.map(\.rawValue).joined(separator: ", ")
            throw CommandError(.err, "bad \(current.name) '\(shown)': expected one of \(words)")
        }
        return choice
    }

    mutating func wait() throws(CommandError) -> Int64 { Int64(try number(in: CommandLimits.wait, "milliseconds")) }
    /// Maps CACHED or NOWAIT to a choice, and rejects a different earlier choice.
    func downloadChoice(
        _ option: Option, instead earlier: DownloadChoice
    ) throws(CommandError) -> DownloadChoice {
        let choice = option == .cached ? DownloadChoice.never : .inBackground
        guard earlier == .awaited || earlier == choice else {
            throw CommandError(
                .err, "bad option '\(current.name)' for '\(command.name)': CACHED and NOWAIT exclude each other")
        }
        return choice
    }

    mutating func ttl() throws(CommandError) -> Int64 { Int64(try number(in: CommandLimits.ttl, "seconds")) }
    /// Reads a uid, or `*` for all uids.
    mutating func uid() throws(CommandError) -> UIDTarget {
        try requireValue()
        if request.withBytes(of: index, { $0.elementsEqual("*".utf8) }) {
            index += 1
            return .all
        }
        return .uid(UInt32(try number(in: CommandLimits.uid, "a user of this machine; * for all of them")))
    }

    mutating func session() throws(CommandError) -> ByteBuffer {
        try requireValue()
        return try id("SESSION")
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

    /// A refresh token is sent only form-encoded, so more characters are allowed than in an access token.
    mutating func refreshToken() throws(CommandError) -> ByteBuffer {
        let limit = limits.token
        return try value(
            { $0.count <= max(limit, 1) && TokenText.isVisible($0) },
            expected: "1 to \(limit) printable ASCII characters (RFC 6749)")
    }

    mutating func connectionName() throws(CommandError) -> ByteBuffer { try value().connectionName(current.name) }
}
