import NIOCore

/// The arguments of a request, read one after another: those at a fixed place, then the options.
struct Arguments {
    let request: Request
    let command: CommandName
    let limits: CommandLimits
    /// Of the argument that comes next.
    var index = 1
    /// One bit for each option that has been read.
    private var seen: UInt32 = 0
    /// The one whose value comes next.
    private(set) var current = Option.size

    init(_ request: borrowing Request, of command: CommandName, _ limits: CommandLimits) {
        self.request = copy request
        self.command = command
        self.limits = limits
    }

    var isAtEnd: Bool { index >= request.count }

    mutating func next() -> ByteBuffer {
        defer { index += 1 }
        return request[index]
    }

    /// An id of a user, a profile or a session: opaque, of 1 to ``CommandLimits/id`` bytes. Its value is never shown.
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

    /// One user, or all of them.
    mutating func target() throws(CommandError) -> UserTarget {
        let user = try id("user")
        let isStar = user.readableBytes == 1 && user.getInteger(at: user.readerIndex) == UInt8(ascii: "*")
        return isStar ? .all : .user(user)
    }

    /// All that are left, each one user or all of them.
    mutating func targets() throws(CommandError) -> [UserTarget] {
        var targets: [UserTarget] = []
        while !isAtEnd { targets.append(try target()) }
        return targets
    }

    /// `*` is nobody's name.
    mutating func user() throws(CommandError) -> ByteBuffer {
        guard case .user(let user) = try target() else {
            throw CommandError(
                .err, "user '*' is reserved: it means every user, and only LOGOUT, PURGE and SUBSCRIBE take it")
        }
        return user
    }

    /// A count and as many profiles. Whatever they look like, they are ids: the count says where they end.
    mutating func profiles() throws(CommandError) -> [ByteBuffer] {
        // A count that is no number is not shown: it may be the id of a profile, whose count was forgotten.
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

    // MARK: Options

    /// Whether an option comes next.
    var isAtOption: Bool { !isAtEnd && Option(request.withBytes(of: index) { Word($0) }) != nil }

    /// The next option, each at most once; nil at the end.
    mutating func option() throws(CommandError) -> Option? {
        guard !isAtEnd else { return nil }
        guard let option = Option(request.withBytes(of: index) { Word($0) }) else {
            // Not shown: what stands where an option is due may well be an id or a token.
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

    /// Whether an option was given.
    func seen(_ option: Option) -> Bool { seen & UInt32(1) << UInt32(option.rawValue) != 0 }

    /// What to throw for an option that this command does not take.
    func notTaken() -> CommandError {
        CommandError(.err, "bad option '\(current.name)' for '\(command.name)': \(expected)")
    }

    var expected: String { "expected \(alternatives(command.specification.options))" }

    /// There is a value for the option.
    func requireValue() throws(CommandError) {
        guard !isAtEnd else {
            throw CommandError(.err, "option \(current.name) of '\(command.name)' lacks its value")
        }
    }
}

extension Request {
    /// Whether this is `GET user profile`, without options. What it names is not checked.
    public var isPlainGet: Bool { count == 3 && withBytes(of: 0) { Word($0) } == "GET" }

    /// - Parameter counts: how many arguments the command may have, its name included.
    func requireCount(
        _ counts: ClosedRange<Int>, of command: @autoclosure () -> CommandSpecification
    ) throws(CommandError) {
        guard counts.contains(count) else {
            let command = command()
            throw CommandError(.err, "wrong number of arguments for '\(command.name)': \(command.syntax)")
        }
    }

    /// Which of the subcommands of `command` it asks for, as `client|id`.
    func subcommand(of command: CommandName) throws(CommandError) -> String {
        let all = command.specification.subcommands
        let words = all.map { $0.name.drop { $0 != "|" }.dropFirst().uppercased() }
        guard let index = words.map({ Word($0) }).firstIndex(of: withBytes(of: 1) { Word($0) }) else {
            throw CommandError(
                .err, "unknown subcommand '\(shown(at: 1))' of '\(command.name)': expected \(alternatives(words))")
        }
        try requireCount(all[index].counts, of: all[index])
        return words[index]
    }

    /// Arguments as names, which are short: one as long as an image is not made a string of.
    func names(_ range: Range<Int>) throws(CommandError) -> [String] {
        try range.map { index throws(CommandError) in
            let name = self[index]
            guard name.readableBytes <= CommandLimits.word else {
                throw CommandError(
                    .err, "argument \(index) is too long: expected a name of at most \(CommandLimits.word) bytes")
            }
            return String(buffer: name)
        }
    }

    /// Text of the client's, fit for an error message.
    func shown(at index: Int) -> String { withBytes(of: index) { printableText($0) } }
}

extension ByteBuffer {
    /// A name that a client gives its connection: no spaces and no control characters, as in Redis.
    func connectionName(_ what: String) throws(CommandError) -> ByteBuffer {
        guard readableBytes <= CommandLimits.name && readableBytesView.allSatisfy({ 0x21...0x7E ~= $0 }) else {
            throw CommandError(
                .err, "bad \(what): expected at most \(CommandLimits.name) printable ASCII characters without spaces")
        }
        return self
    }
}

/// A name of the protocol, of a command or an option, with its case folded: at most twelve letters in one machine word,
/// five bits each, so that telling commands apart makes no string and costs one comparison each.
struct Word: Equatable, Sendable, ExpressibleByStringLiteral {
    /// The letters in upper case, the last one lowest; 0 for what is no name at all.
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
        self = text.withUTF8 { Word(UnsafeRawBufferPointer($0)) }
    }

    /// Of upper-case letters, twelve at most.
    @inline(__always)
    init(stringLiteral text: StaticString) {
        self.init(UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
    }
}
