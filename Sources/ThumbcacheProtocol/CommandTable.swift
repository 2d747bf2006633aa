import NIOCore
import RESP

/// The commands there are, as COMMAND shows them: in the shapes of Redis 7, so that its clients can read them.
/// https://redis.io/docs/latest/commands/command/ and command-docs/
public struct CommandTable: Sendable {
    public let commands: [CommandSpecification]

    /// Costs some hundred allocations: make one and keep it.
    public init() {
        commands = CommandName.allCases.map(\.specification)
    }

    /// Writes the whole reply to a COMMAND command.
    public func writeCommandReply(_ query: CommandQuery, version: RESPVersion, into buffer: inout ByteBuffer) {
        switch query {
        case .count:
            buffer.writeRESPInteger(commands.count)
        case .all, .info([]):
            buffer.writeArrayHeader(count: commands.count)
            for command in commands { command.writeInfo(version, into: &buffer) }
        case .info(let names):
            buffer.writeArrayHeader(count: names.count)
            for name in names {
                if let command = find(name) {
                    command.writeInfo(version, into: &buffer)
                } else {
                    buffer.writeNull(kind: .bulk, version: version)
                }
            }
        case .docs(let names):
            let found = names.isEmpty ? commands : names.compactMap(find)
            buffer.writeMapHeader(count: found.count, version: version)
            for command in found { command.writeDocs(version, into: &buffer) }
        }
    }

    /// By name in any case; a subcommand as `client|id`.
    func find(_ name: String) -> CommandSpecification? {
        let name = name.lowercased()
        let path = name.split(separator: "|", maxSplits: 1, omittingEmptySubsequences: false)
        guard let command = commands.first(where: { $0.name == path[0] }) else { return nil }
        return path.count == 1 ? command : command.subcommands.first { $0.name == name }
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
