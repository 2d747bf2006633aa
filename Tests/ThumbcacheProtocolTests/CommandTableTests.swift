import NIOCore
import Testing

@testable import ThumbcacheProtocol

@Suite struct CommandTableTests {
    let table = CommandTable()

    private func reply(_ query: CommandQuery, _ version: RESPVersion) throws -> Value {
        var buffer = table.reply(to: query, version: version)
        let value = try #require(try buffer.readReply())
        #expect(buffer.readableBytes == 0, "bytes remain after the reply")
        return value
    }

    private func names(_ reply: Value) -> [String?]? {
        reply.elements?.map { $0.elements?.first?.text }
    }

    @Test(arguments: RESPVersion.allCases)
    func `COMMAND and COMMAND INFO list every command with ten elements`(version: RESPVersion) throws {
        for query in [CommandQuery.all, .info([])] {
            let reply = try reply(query, version)
            #expect(names(reply) == CommandName.allCases.map(\.name))
            for command in reply.elements ?? [] { #expect(command.elements?.count == 10) }
        }
        #expect(try reply(.count, version) == .integer(CommandName.allCases.count))
    }

    @Test(arguments: RESPVersion.allCases)
    func `COMMAND INFO returns null for an unknown command`(version: RESPVersion) throws {
        let reply = try reply(.info(["GET", "nothing", "client|ID", "client|nothing", "", "|"]), version)
        #expect(names(reply) == ["get", nil, "client|id", nil, nil, nil])
        #expect(reply.elements?.map(\.isNull) == [false, true, false, true, true, true])
    }

    @Test func `COMMAND INFO has the format of Redis`() throws {
        var buffer = table.reply(to: .info(["get"]), version: .two)
        #expect(
            String(buffer: buffer)
                == "*1\r\n*10\r\n$3\r\nget\r\n:-3\r\n*1\r\n+readonly\r\n:0\r\n:0\r\n:0\r\n*0\r\n*0\r\n*0\r\n*0\r\n")
        buffer = table.reply(to: .info(["get"]), version: .three)
        #expect(
            String(buffer: buffer)
                == "*1\r\n*10\r\n$3\r\nget\r\n:-3\r\n~1\r\n+readonly\r\n:0\r\n:0\r\n:0\r\n~0\r\n~0\r\n~0\r\n~0\r\n")
    }

    @Test(arguments: RESPVersion.allCases)
    func `COMMAND DOCS describes every command`(version: RESPVersion) throws {
        let reply = try reply(.docs([]), version)
        #expect(reply.entries?.map(\.key.text) == CommandName.allCases.map(\.name))
        for (_, docs) in reply.entries ?? [] {
            #expect(docs["since"]?.text == "0.1.0")
            for key in ["summary", "group"] { #expect(docs[key]?.text?.isEmpty == false) }
        }
        let arguments = try #require(reply["purge"]?["arguments"]?.elements)
        #expect(arguments.map { $0["type"]?.text } == ["oneof", "block", "oneof"])
        #expect(arguments[1]["flags"]?.elements?.map(\.text) == ["optional"])
        #expect(arguments[1]["arguments"]?.elements?.last?["flags"]?.elements?.map(\.text) == ["multiple"])
        #expect(arguments[2]["token"]?.text == "UID")
        #expect(reply["client"]?["subcommands"]?.entries?.first?.key.text == "client|id")
    }

    @Test(arguments: RESPVersion.allCases)
    func `COMMAND DOCS omits unknown commands`(version: RESPVersion) throws {
        #expect(try reply(.docs(["Get", "nothing"]), version).entries?.map(\.key.text) == ["get"])
        #expect(try reply(.docs(["nothing"]), version).entries?.count == 0)
    }

    @Test(arguments: RESPVersion.allCases)
    func `F66: COMMAND DOCS returns repeated names once`(version: RESPVersion) throws {
        let names = (0..<1_000).map { $0.isMultiple(of: 2) ? "client" : "CLIENT|ID" }
        #expect(try reply(.docs(names), version).entries?.map(\.key.text) == ["client", "client|id"])
    }

    @Test(arguments: CommandName.allCases)
    func `The arity of COMMAND is enforced`(name: CommandName) {
        let arity = name.specification.arity
        let wrong = "wrong number of arguments for '\(name.name)'"
        func isWrong(_ count: Int) -> Bool {
            let arguments = [name.name] + Array(repeating: "0", count: count - 1)
            return refusal(arguments)?.message.hasPrefix(wrong) == true
        }
        let least = abs(arity)
        #expect(least == 1 || isWrong(least - 1))
        #expect(!isWrong(least))
        #expect(arity < 0 || isWrong(least + 1))
    }

    @Test(arguments: CommandName.allCases)
    func `Exactly the described options are accepted`(name: CommandName) {
        let described = Set(name.specification.options)
        let least: [CommandName: [String]] = [
            .get: ["u", "p"], .mget: ["u", "1", "p"], .put: ["u", "p", "i"], .purge: ["u"], .stat: ["u", "p"],
            .explain: ["u", "p"],
            .login: ["u"], .logout: ["u"], .hello: ["3"],
        ]
        guard let positional = least[name] else { return }
        for option in Option.allCases {
            let message = refusal([name.name] + positional + [option.name])?.message ?? ""
            #expect(message.hasPrefix("bad option") == !described.contains(option.name), "\(option.name)")
        }
    }

    @Test func `Keys of replies match the protocol`() {
        #expect(ReceiptKey.allCases.map(\.rawValue) == ["users", "images", "bytes", "cancelled", "sessions", "epoch"])
        #expect(
            MetaKey.allCases.map(\.rawValue) == [
                "image", "digest", "type", "length", "width", "height", "age", "ttl", "state", "source", "epoch",
                "rendered",
            ])
        #expect(MetaKey.stat == Array(MetaKey.allCases.dropFirst()))
        #expect(
            StatKey.allCases.map(\.rawValue) == ["images", "bytes", "sessions", "origin", "logged-in-at", "epoch"])
        #expect(
            ExplainKey.allCases.map(\.rawValue) == [
                "action", "error", "held", "from", "age", "ttl", "state", "origin", "upstreams", "retry-in", "waiting",
                "size", "source",
            ])
        #expect(UpstreamKey.allCases.map(\.rawValue) == ["host", "state", "age", "retry-in"])
        #expect(
            HelloKey.allCases.map(\.rawValue) == ["server", "version", "proto", "id", "mode", "role", "modules"])
    }
}
