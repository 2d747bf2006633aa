import NIOCore

/// Reads the arguments of a request: positional arguments first, then options.
struct Arguments {
    let request: Request
    let command: CommandName
    let limits: RequestLimits
    /// The index of the next argument.
    var index = 1
    /// One bit per option that has been read.
    private var seen: UInt32 = 0
    /// The option that was read last.
    private(set) var current = Option.size

    init(_ request: borrowing Request, of command: CommandName, _ limits: RequestLimits) {
        self.request = copy request
        self.command = command
        self.limits = limits
    }

    var isAtEnd: Bool { index >= request.count }

    mutating func next() -> ByteBuffer {
        defer { index += 1 }
        return request[index]
    }

    /// Reads a user, profile or session id: 1 to ``RequestLimits/id`` opaque bytes. Errors never contain it.
    mutating func id(_ what: String) throws(CommandError) -> ByteBuffer {
        let id = next()
        guard id.readableBytes > 0 else {
            throw CommandError(.err, "\(what) is empty: expected 1 to \(limits.id) bytes")
        }
        guard id.readableBytes <= limits.id else {
            throw CommandError(.err, "\(what) has \(id.readableBytes) bytes: expected 1 to \(limits.id)")
        }
        return id
    }

    mutating func target() throws(CommandError) -> UserTarget {
        let user = try id("user")
        let isStar = user.readableBytes == 1 && user.getInteger(at: user.readerIndex) == UInt8(ascii: "*")
        return isStar ? .all : .user(user)
    }

    mutating func targets() throws(CommandError) -> [UserTarget] {
        var targets: [UserTarget] = []
        while !isAtEnd { targets.append(try target()) }
        return targets
    }

    /// Reads a user other than `*`.
    mutating func user() throws(CommandError) -> ByteBuffer {
        guard case .user(let user) = try target() else {
            throw CommandError(
                .err, "user '*' is reserved: it means every user, and only LOGOUT, PURGE and SUBSCRIBE take it")
        }
        return user
    }

    /// Reads a count and that many profiles, which may look like options.
    mutating func profiles() throws(CommandError) -> [ByteBuffer] {
        // An invalid count is not shown: it may be a profile id whose count is missing.
        guard let count = request.withBytes(of: index, { wholeNumber($0) }) else {
            throw CommandError(
                .err, "the count of profiles is not a whole number of decimal digits: \(command.specification.syntax)")
        }
        guard count >= 1 else { throw CommandError(.err, "the count of profiles is 0: expected at least 1") }
        let available = request.count - index - 1
        guard count <= available else {
            throw CommandError(
                .err,
                "the count of profiles is \(request.shown(at: index)), more than the arguments that follow "
                    + "(\(available))"
            )
        }
        index += 1
        return try (1...count).map { number throws(CommandError) in try id("profile \(number)") }
    }

    /// Whether the next argument is an option.
    var isAtOption: Bool { !isAtEnd && Option(request.withBytes(of: index) { PackedName($0) }) != nil }

    /// Reads the next option; nil at the end. Each option is allowed once.
    mutating func option() throws(CommandError) -> Option? {
        guard !isAtEnd else { return nil }
        guard let option = Option(request.withBytes(of: index) { PackedName($0) }) else {
            // Not shown, since it may be an id or a token.
            throw CommandError(.err, "bad option (argument \(index)) for '\(command.name)': \(expected)")
        }
        let bit = UInt32(1) << UInt32(option.rawValue)
        guard seen & bit == 0 else {
            throw CommandError(.err, "option \(option.name) of '\(command.name)' is given twice")
        }
        seen |= bit
        current = option
        index += 1
        return option
    }

    func seen(_ option: Option) -> Bool { seen & UInt32(1) << UInt32(option.rawValue) != 0 }

    func unsupportedOption() -> CommandError {
        CommandError(.err, "bad option '\(current.name)' for '\(command.name)': \(expected)")
    }

    var expected: String { "expected \(alternatives(command.specification.options))" }

    func requireValue() throws(CommandError) {
        guard !isAtEnd else {
            throw CommandError(.err, "option \(current.name) of '\(command.name)' has no value")
        }
    }
}

extension Request {
    /// Whether this is `GET user profile` without options. The arguments are not validated.
    public var isPlainGet: Bool { count == 3 && withBytes(of: 0) { PackedName($0) } == "GET" }

    /// - Parameter counts: the allowed number of arguments, including the command's name.
    func requireCount(
        _ counts: ClosedRange<Int>, of command: @autoclosure () -> CommandSpecification
    ) throws(CommandError) {
        guard counts.contains(count) else {
            let command = command()
            throw CommandError(.err, "wrong number of arguments for '\(command.name)': \(command.syntax)")
        }
    }

    /// Returns the subcommand of `command` in upper case, such as `ID`.
    func subcommand(of command: CommandName) throws(CommandError) -> String {
        let all = command.specification.subcommands
        let words = all.map { $0.name.drop { $0 != "|" }.dropFirst().uppercased() }
        guard let index = words.map({ PackedName($0) }).firstIndex(of: withBytes(of: 1) { PackedName($0) }) else {
            throw CommandError(
                .err, "unknown subcommand '\(shown(at: 1))' of '\(command.name)': expected \(alternatives(words))")
        }
        try requireCount(all[index].counts, of: all[index])
        return words[index]
    }

    /// Returns arguments as short names. Rejects long ones before a string is allocated.
    func names(_ range: Range<Int>) throws(CommandError) -> [String] {
        try range.map { index throws(CommandError) in
            let name = self[index]
            guard name.readableBytes <= CommandLimits.shortName else {
                throw CommandError(
                    .err, "argument \(index) is too long: expected a name of at most \(CommandLimits.shortName) bytes")
            }
            return String(buffer: name)
        }
    }

    func shown(at index: Int) -> String { withBytes(of: index) { printableText($0) } }
}

extension ByteBuffer {
    /// Validates a connection name: no spaces and no control characters, as in Redis.
    func connectionName(_ what: String) throws(CommandError) -> ByteBuffer {
        guard readableBytes <= CommandLimits.name && readableBytesView.allSatisfy({ 0x21...0x7E ~= $0 }) else {
            throw CommandError(
                .err, "bad \(what): expected at most \(CommandLimits.name) printable ASCII characters without spaces")
        }
        return self
    }
}

/// The name of a command or option, folded to upper case: at most 12 letters of 5 bits each in one integer, so that a
/// lookup allocates no string and takes one comparison per name.
struct PackedName: Equatable, Sendable, ExpressibleByStringLiteral {
    /// The letters, the last one in the lowest bits; 0 for anything else.
    private let letters: UInt64

    @inline(__always)
    init(_ bytes: UnsafeRawBufferPointer) {
        var letters: UInt64 = 0
        for byte in bytes {
            let letter = byte & 0xDF
            guard bytes.count <= 12, letter &- UInt8(ascii: "A") < 26 else {
                self.letters = 0
                return
            }
            letters = letters &<< 5 | UInt64(letter & 0x1F)
        }
        self.letters = letters
    }

    init(_ text: String) {
        var text = text
        self = text.withUTF8 { PackedName(UnsafeRawBufferPointer($0)) }
    }

    /// A literal has at most 12 letters.
    @inline(__always)
    init(stringLiteral text: StaticString) {
        self.init(UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
    }
}
