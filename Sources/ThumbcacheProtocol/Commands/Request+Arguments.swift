import NIOCore
import RESP

/// The arguments that stand at a fixed place.
extension Request {
    /// Whether this is `GET user profile`, without options. What it names is not checked.
    public var isPlainGet: Bool { count == 3 && withBytes(of: 0) { Word($0) } == "GET" }

    /// An id of a user, a profile or a session: opaque, of 1 to ``CommandLimits/id`` bytes. Its value is never shown.
    func id(at index: Int, _ what: String, _ limits: CommandLimits) throws(CommandError) -> ByteBuffer {
        let id = self[index]
        guard id.readableBytes > 0 else {
            throw CommandError(.err, "\(what) is empty: expected 1 to \(limits.id) bytes")
        }
        guard id.readableBytes <= limits.id else {
            throw CommandError(.err, "\(what) has \(id.readableBytes) bytes: expected 1 to \(limits.id)")
        }
        return id
    }

    /// The user, who stands first; `*` is nobody's name.
    func user(_ limits: CommandLimits) throws(CommandError) -> ByteBuffer {
        let user = try id(at: 1, "user", limits)
        guard !user.isStar else {
            throw CommandError(.err, "user '*' is reserved: it means every user, and only LOGOUT and PURGE take it")
        }
        return user
    }

    /// One user, or all of them.
    func target(_ limits: CommandLimits) throws(CommandError) -> UserTarget {
        let user = try id(at: 1, "user", limits)
        return user.isStar ? .all : .user(user)
    }

    /// A count and as many profiles. Whatever they look like, they are ids: the count says where they end.
    ///
    /// - Parameter index: of the count; moved behind the last profile.
    func profiles(
        at index: inout Int, of command: CommandName, _ limits: CommandLimits
    ) throws(CommandError) -> [ByteBuffer] {
        let available = count - index - 1
        // A count that is no number is not shown: it may be the id of a profile, whose count was forgotten.
        guard let number = withBytes(of: index, { wholeNumber($0) }) else {
            throw CommandError(
                .err, "the count of profiles is not a whole number of decimal digits: \(command.specification.syntax)")
        }
        guard number >= 1 else {
            throw CommandError(.err, "the count of profiles is 0: expected at least 1")
        }
        guard number <= available else {
            throw CommandError(
                .err,
                "the count of profiles is \(shown(at: index)), more than the arguments that follow (\(available))")
        }
        var profiles: [ByteBuffer] = []
        profiles.reserveCapacity(number)
        for offset in 1...number { profiles.append(try id(at: index + offset, "profile \(offset)", limits)) }
        index += number + 1
        return profiles
    }

    /// A name that a client gives its connection: no spaces and no control characters, as in Redis.
    func connectionName(at index: Int, _ what: String) throws(CommandError) -> ByteBuffer {
        let isName = withBytes(of: index) { bytes in
            bytes.count <= CommandLimits.name && bytes.allSatisfy { 0x21...0x7E ~= $0 }
        }
        guard isName else {
            throw CommandError(
                .err,
                "bad \(what): expected at most \(CommandLimits.name) printable ASCII characters without spaces")
        }
        return self[index]
    }

    /// Refuses a request that has too few arguments or too many.
    func requireCount(_ range: some RangeExpression<Int>, of command: CommandName) throws(CommandError) {
        guard range.contains(count) else { throw wrongCount(of: command) }
    }

    func wrongCount(of command: CommandName) -> CommandError {
        CommandError(.err, "wrong number of arguments for '\(command.rawValue)': \(command.specification.syntax)")
    }

    /// The name of something, which is short: an argument as long as an image is not made a string of.
    func name(at index: Int) throws(CommandError) -> String {
        let name = withBytes(of: index) { bytes in
            bytes.count <= CommandLimits.word ? String(decoding: bytes, as: UTF8.self) : nil
        }
        guard let name else {
            throw CommandError(
                .err, "argument \(index) is too long: expected a name of at most \(CommandLimits.word) bytes")
        }
        return name
    }

    /// The arguments from `start` on, as names.
    func names(from start: Int) throws(CommandError) -> [String] {
        var names: [String] = []
        for index in start..<max(start, count) { names.append(try name(at: index)) }
        return names
    }

    /// Text of the client's, fit for an error message.
    func shown(at index: Int) -> String {
        withBytes(of: index) { printableText($0) }
    }
}

extension ByteBuffer {
    fileprivate var isStar: Bool {
        readableBytes == 1 && getInteger(at: readerIndex, as: UInt8.self) == UInt8(ascii: "*")
    }
}

/// A number of at most 32 decimal digits, without sign or leading zeros; `Int.max` stands for all that do not fit; else nil.
func wholeNumber(_ bytes: UnsafeRawBufferPointer) -> Int? {
    guard let first = bytes.first, bytes.count <= 32, bytes.count == 1 || first != UInt8(ascii: "0") else { return nil }
    var value = 0
    for byte in bytes {
        let digit = byte &- UInt8(ascii: "0")
        guard digit <= 9 else { return nil }
        let (tens, isOver) = value.multipliedReportingOverflow(by: 10)
        let (sum, isOverToo) = tens.addingReportingOverflow(Int(digit))
        value = isOver || isOverToo || value == .max ? .max : sum
    }
    return value
}
