import NIOCore

/// The replies to COMMAND, in the format of Redis 7.
/// https://redis.io/docs/latest/commands/command/ and command-docs/
///
/// Replies are encoded once, so that each costs only a copy.
public struct CommandTable: Sendable {
    private let two = Replies(.two)
    private let three = Replies(.three)

    private struct Replies: Sendable {
        var info = ByteBuffer()
        var docs = ByteBuffer()
        /// The replies for one command by name; of a subcommand as `client|id`.
        var named: [String: (info: ByteBuffer, docs: ByteBuffer)] = [:]

        init(_ version: RESPVersion) {
            let commands = CommandName.allCases.map(\.specification)
            info.writeArrayHeader(count: commands.count)
            docs.writeMapHeader(count: commands.count, version: version)
            for command in commands {
                command.writeInfo(version, into: &info)
                command.writeDocs(version, into: &docs)
            }
            for command in commands + commands.flatMap(\.subcommands) {
                named[command.name] = (
                    .reply { command.writeInfo(version, into: &$0) }, .reply { command.writeDocs(version, into: &$0) }
                )
            }
        }
    }

    /// Encodes all replies, which takes some thousand allocations. Create one table and reuse it.
    public init() {}

    /// Returns the reply to a COMMAND command. It may share storage with others; copy it before changing it.
    public func reply(to query: CommandQuery, version: RESPVersion) -> ByteBuffer {
        let replies = version == .two ? two : three
        switch query {
        case .count: return .reply { $0.writeRESPInteger(CommandName.allCases.count) }
        case .all, .info([]): return replies.info
        case .docs([]): return replies.docs
        case .info(let names):
            return .reply { reply in
                reply.writeArrayHeader(count: names.count)
                for name in names {
                    if let entry = replies.named[name.lowercased()] {
                        reply.writeImmutableBuffer(entry.info)
                    } else {
                        reply.writeNull(kind: .bulk, version: version)
                    }
                }
            }
        case .docs(let names):
            // Keys of a map are unique, which also bounds the reply.
            var seen: Set<String> = []
            let entries = names.map { $0.lowercased() }.filter { seen.insert($0).inserted }
                .compactMap { replies.named[$0]?.docs }
            return .reply { reply in
                reply.writeMapHeader(count: entries.count, version: version)
                for entry in entries { reply.writeImmutableBuffer(entry) }
            }
        }
    }
}

extension CommandSpecification {
    /// Writes ten elements: name, arity, flags, first key, last key, step, categories, tips, key specifications and
    /// subcommands. There are no keys in the sense of Redis.
    fileprivate func writeInfo(_ version: RESPVersion, into buffer: inout ByteBuffer) {
        buffer.writeArrayHeader(count: 10)
        buffer.writeBulkString(name)
        buffer.writeRESPInteger(arity)
        buffer.writeWords(flags, version)
        for _ in 0..<3 { buffer.writeRESPInteger(0) }
        for _ in 0..<3 { buffer.writeSetHeader(count: 0, version: version) }
        buffer.writeSetHeader(count: subcommands.count, version: version)
        for subcommand in subcommands { subcommand.writeInfo(version, into: &buffer) }
    }

    /// The version that introduced all current commands. A later command needs its own.
    private static let firstVersion = "0.1.0"

    /// Writes the name and a map without empty members.
    fileprivate func writeDocs(_ version: RESPVersion, into buffer: inout ByteBuffer) {
        buffer.writeBulkString(name)
        let count = 3 + (arguments.isEmpty ? 0 : 1) + (subcommands.isEmpty ? 0 : 1)
        buffer.writeMapHeader(count: count, version: version)
        buffer.writePair("summary", summary)
        buffer.writePair("since", Self.firstVersion)
        buffer.writePair("group", group)
        buffer.writeArguments(arguments, version)
        if !subcommands.isEmpty {
            buffer.writeBulkString("subcommands")
            buffer.writeMapHeader(count: subcommands.count, version: version)
            for subcommand in subcommands { subcommand.writeDocs(version, into: &buffer) }
        }
    }
}

extension CommandArgument {
    fileprivate func writeDocs(_ version: RESPVersion, into buffer: inout ByteBuffer) {
        let flags = (isOptional ? ["optional"] : []) + (isMultiple ? ["multiple"] : [])
        let count = 2 + (token == nil ? 0 : 1) + (flags.isEmpty ? 0 : 1) + (arguments.isEmpty ? 0 : 1)
        buffer.writeMapHeader(count: count, version: version)
        buffer.writePair("name", name)
        buffer.writePair("type", kind.rawValue)
        if let token { buffer.writePair("token", token) }
        if !flags.isEmpty {
            buffer.writeBulkString("flags")
            buffer.writeWords(flags, version)
        }
        buffer.writeArguments(arguments, version)
    }
}

extension ByteBuffer {
    fileprivate mutating func writePair(_ key: String, _ value: String) {
        writeBulkString(key)
        writeBulkString(value)
    }

    fileprivate mutating func writeArguments(_ arguments: [CommandArgument], _ version: RESPVersion) {
        guard !arguments.isEmpty else { return }
        writeBulkString("arguments")
        writeArrayHeader(count: arguments.count)
        for argument in arguments { argument.writeDocs(version, into: &self) }
    }

    fileprivate mutating func writeWords(_ words: [String], _ version: RESPVersion) {
        writeSetHeader(count: words.count, version: version)
        for word in words { writeSimpleString(word) }
    }
}
