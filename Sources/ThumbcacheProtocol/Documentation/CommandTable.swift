import NIOCore
import RESP

/// The commands there are, as COMMAND shows them: in the shapes of Redis 7, so that its clients can read them.
/// https://redis.io/docs/latest/commands/command/ and command-docs/
///
/// What is said of each is rendered once, so that a reply costs a copy of its bytes, however many names it was asked with.
public struct CommandTable: Sendable {
    public let commands: [CommandSpecification]
    private let replies: [RESPVersion: Replies]

    /// What COMMAND answers in one version of the protocol.
    private struct Replies: Sendable {
        var info = ByteBuffer()
        var docs = ByteBuffer()
        /// By name; a subcommand as `client|id`.
        var named: [String: Entry] = [:]
    }

    private struct Entry: Sendable {
        var info = ByteBuffer()
        var docs = ByteBuffer()
    }

    /// Costs some thousand allocations: make one and keep it.
    public init() {
        let commands = CommandName.allCases.map(\.specification)
        self.commands = commands
        replies = Dictionary(
            uniqueKeysWithValues: RESPVersion.allCases.map { ($0, Self.render(commands, $0)) })
    }

    private static func render(_ commands: [CommandSpecification], _ version: RESPVersion) -> Replies {
        var replies = Replies()
        for command in commands + commands.flatMap(\.subcommands) {
            var entry = Entry()
            command.writeInfo(version, into: &entry.info)
            command.writeDocs(version, into: &entry.docs)
            replies.named[command.name] = entry
        }
        let entries = commands.compactMap { replies.named[$0.name] }
        replies.info.writeArrayHeader(count: entries.count)
        replies.docs.writeMapHeader(count: entries.count, version: version)
        for entry in entries {
            replies.info.writeImmutableBuffer(entry.info)
            replies.docs.writeImmutableBuffer(entry.docs)
        }
        return replies
    }

    /// The whole reply to a COMMAND command. It may share storage with others: copy it before changing it.
    public func reply(to query: CommandQuery, version: RESPVersion) -> ByteBuffer {
        let replies = replies[version] ?? Replies()
        var reply = ByteBuffer()
        switch query {
        case .count:
            reply.writeRESPInteger(commands.count)
        case .all, .info([]):
            return replies.info
        case .docs([]):
            return replies.docs
        case .info(let names):
            let entries = names.map { replies.named[$0.lowercased()]?.info }
            reply.reserveCapacity(entries.reduce(16) { $0 + ($1?.readableBytes ?? 5) })
            reply.writeArrayHeader(count: names.count)
            for entry in entries {
                if let entry {
                    reply.writeImmutableBuffer(entry)
                } else {
                    reply.writeNull(kind: .bulk, version: version)
                }
            }
        case .docs(let names):
            // A map has a key once: so the reply is never longer than what there is to say.
            var seen: Set<String> = []
            let entries = names.map { $0.lowercased() }.filter { seen.insert($0).inserted }
                .compactMap { replies.named[$0]?.docs }
            reply.writeMapHeader(count: entries.count, version: version)
            for entry in entries { reply.writeImmutableBuffer(entry) }
        }
        return reply
    }
}

extension CommandSpecification {
    /// Ten elements: name, arity, flags, first key, last key, step, categories, tips, key specifications, subcommands.
    /// There are no keys in the sense of Redis.
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

    /// Name and a map; what is empty is left out of it.
    fileprivate func writeDocs(_ version: RESPVersion, into buffer: inout ByteBuffer) {
        buffer.writeBulkString(name)
        let count = 3 + (arguments.isEmpty ? 0 : 1) + (subcommands.isEmpty ? 0 : 1)
        buffer.writeMapHeader(count: count, version: version)
        buffer.writePair("summary", summary)
        buffer.writePair("since", "1.0.0")
        buffer.writePair("group", group)
        if !arguments.isEmpty {
            buffer.writeBulkString("arguments")
            buffer.writeArrayHeader(count: arguments.count)
            for argument in arguments { argument.writeDocs(version, into: &buffer) }
        }
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
        if !arguments.isEmpty {
            buffer.writeBulkString("arguments")
            buffer.writeArrayHeader(count: arguments.count)
            for argument in arguments { argument.writeDocs(version, into: &buffer) }
        }
    }
}

extension ByteBuffer {
    fileprivate mutating func writePair(_ key: String, _ value: String) {
        writeBulkString(key)
        writeBulkString(value)
    }

    fileprivate mutating func writeWords(_ words: [String], _ version: RESPVersion) {
        writeSetHeader(count: words.count, version: version)
        for word in words { writeSimpleString(word) }
    }
}
