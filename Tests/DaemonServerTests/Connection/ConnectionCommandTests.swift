import NIOCore
import Testing
import ThumbcacheProtocol

@testable import DaemonServer

/// Commands that access no cache.
@Suite(.timeLimit(.minutes(5))) struct ConnectionCommandTests {
    static let exact: [(request: [String], two: String, three: String)] = [
        (["PING"], "+PONG\r\n", "+PONG\r\n"),
        (["ping", "hey"], "$3\r\nhey\r\n", "$3\r\nhey\r\n"),
        (["ECHO", ""], "$0\r\n\r\n", "$0\r\n\r\n"),
        (["SELECT", "0"], "+OK\r\n", "+OK\r\n"),
        (
            ["SELECT", "1"], "-ERR no database '1': only 0 exists\r\n",
            "-ERR no database '1': only 0 exists\r\n"
        ),
        (["CLIENT", "GETNAME"], "$-1\r\n", "_\r\n"),
        (["CLIENT", "SETNAME", "app"], "+OK\r\n", "+OK\r\n"),
        (["CLIENT", "SETINFO", "LIB-NAME", "redis-py"], "+OK\r\n", "+OK\r\n"),
        (["CLIENT", "CAPA", "redirect"], "+OK\r\n", "+OK\r\n"),
        (["client", "capa", "redirect", "what is to come"], "+OK\r\n", "+OK\r\n"),
        (
            ["CLIENT", "CAPA"],
            "-ERR wrong number of arguments for 'client|capa': CLIENT CAPA name [name ...]\r\n",
            "-ERR wrong number of arguments for 'client|capa': CLIENT CAPA name [name ...]\r\n"
        ),
        (["COMMAND", "COUNT"], ":22\r\n", ":22\r\n"),
        (["COMMAND", "INFO", "nonesuch"], "*1\r\n$-1\r\n", "*1\r\n_\r\n"),
        (["COMMAND", "DOCS", "nonesuch"], "*0\r\n", "%0\r\n"),
        (["USERS"], "*0\r\n", "*0\r\n"),
        (
            ["HELLO", "4"], "-NOPROTO no protocol version '4': expected 2 or 3\r\n",
            "-NOPROTO no protocol version '4': expected 2 or 3\r\n"
        ),
        (
            ["NONESUCH"], "-ERR unknown command 'NONESUCH', see COMMAND\r\n",
            "-ERR unknown command 'NONESUCH', see COMMAND\r\n"
        ),
        (
            ["HELLO", "3", "AUTH", "me", "secret"],
            "-ERR AUTH is not supported: the kernel reports the caller's uid (1000)\r\n",
            "-ERR AUTH is not supported: the kernel reports the caller's uid (1000)\r\n"
        ),
    ]

    @Test(arguments: exact)
    func `each reply matches its protocol version to the byte`(
        _ row: (request: [String], two: String, three: String)
    ) async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connect()
            let arguments = row.request.map { ByteBuffer(string: $0) }
            #expect(try await client.wire(arguments) == row.two)
            _ = try await client.wire("CLIENT", "SETNAME", "")
            _ = try await client.wire("HELLO", "3")
            #expect(try await client.wire(arguments) == row.three)
        }
    }

    @Test func `HELLO returns the map that Redis clients expect, in the version it sets`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connect()
            let pairs =
                "$6\r\nserver\r\n$11\r\nthumbcached\r\n$7\r\nversion\r\n$5\r\n0.1.0\r\n$5\r\nproto\r\n:P\r\n"
                + "$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n"
                + "$7\r\nmodules\r\n*0\r\n"
            let two = "*14\r\n" + pairs.replacing(":P", with: ":2")
            let three = "%7\r\n" + pairs.replacing(":P", with: ":3")
            #expect(try await client.wire("HELLO") == two)
            #expect(try await client.wire("HELLO", "3") == three)
            #expect(try await client.wire("HELLO") == three)
            #expect(try await client.wire("HELLO", "2") == two)
        }
    }

    @Test func `a failed HELLO changes neither version nor name`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connect()
            #expect(try await client.call("HELLO", "3", "SETNAME", "one")["proto"] == .integer(3))
            #expect(try await client.call("HELLO", "2", "AUTH", "a", "b", "SETNAME", "two").code == "ERR")
            #expect(try await client.wire("STAT", "nobody") == "_\r\n")
            #expect(try await client.call("CLIENT", "GETNAME") == bulk("one"))
        }
    }

    @Test func `RESET restores version 2 and no name`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connect()
            _ = try await client.call("HELLO", "3", "SETNAME", "app")
            #expect(try await client.wire("RESET") == "+RESET\r\n")
            #expect(try await client.wire("CLIENT", "GETNAME") == "$-1\r\n")
            #expect(try await client.wire("STAT", "nobody") == "*-1\r\n")
        }
    }

    @Test func `every connection has a unique id`() async throws {
        try await TestDaemon.run { daemon in
            let first = try await daemon.connect()
            #expect(try await first.call("CLIENT", "ID") == .integer(1))
            let second = try await daemon.connect()
            #expect(try await second.call("CLIENT", "ID") == .integer(2))
            #expect(try await first.call("CLIENT", "ID") == .integer(1))
        }
    }

    @Test func `QUIT replies OK after earlier replies and closes without starting later commands`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connect()
            try await client.pipeline([["PING"], ["QUIT"], ["PING"]])
            #expect(try await client.rest() == "+PONG\r\n+OK\r\n")
        }
    }

    @Test func `INFO has the requested sections, with values of all uids for observers only`() async throws {
        let info = ServerInfo([
            "server": { _, _ in [("version", "9.8.7")] },
            "memory": { peer, _ in peer.isObserver ? [("bytes", "12")] : [] },
            "sessions": { peer, _ in [("uid", "\(peer.uid)")] },
        ])
        try await TestDaemon.run {
            $0.info = info
        } _: { daemon in
            let client = try await daemon.connect()
            let mine = "# Server\r\nversion:9.8.7\r\n\r\n# Memory\r\n\r\n# Sessions\r\nuid:1000\r\n"
            #expect(try await client.wire("INFO") == "$\(mine.utf8.count)\r\n\(mine)\r\n")
            #expect(try await client.wire("INFO", "memory") == "$10\r\n# Memory\r\n\r\n")
            _ = try await client.call("HELLO", "3")
            let one = "# Sessions\r\nuid:1000\r\n"
            #expect(try await client.wire("INFO", "SESSIONS") == "=\(one.utf8.count + 4)\r\ntxt:\(one)\r\n")

            for peer in [TestDaemon.admin, TestDaemon.observer] {
                let client = try await daemon.connect(as: peer)
                #expect(try await client.call("INFO", "memory") == bulk("# Memory\r\nbytes:12\r\n"))
            }
        }
    }

    @Test func `F28: CLIENT LIST has the caller's connections, and for an admin all`()
        async throws
    {
        try await TestDaemon.run { daemon in
            let app = try await daemon.connect()
            _ = try await app.call("CLIENT", "SETNAME", "contacts")
            _ = try await app.call("CLIENT", "SETINFO", "LIB-NAME", "redis-py")
            _ = try await app.call("CLIENT", "SETINFO", "LIB-VER", "5.0")
            let other = try await daemon.connect(as: Peer(uid: 1001, pid: 7, isAdmin: false, isObserver: true))
            let admin = try await daemon.connect(as: Peer(uid: 0, pid: 1, isAdmin: true))
            func lines(_ client: TestClient) async throws -> [String] {
                let text = try #require(try await client.call("CLIENT", "LIST").text)
                return text.split(separator: "\n").map { line in
                    line.split(separator: " ").filter { !$0.hasPrefix("age=") && !$0.hasPrefix("idle=") }
                        .joined(separator: " ")
                }
            }
            let own =
                "id=1 uid=1000 pid=\(TestDaemon.defaultPeer.pid) admin=0 name=contacts lib-name=redis-py lib-ver=5.0"
            #expect(try await lines(app) == [own])
            let others = "id=1 uid=1001 pid=7 admin=0 name= lib-name= lib-ver="
            #expect(try await lines(other) == [others])
            #expect(try await lines(admin) == [own, others, "id=1 uid=0 pid=1 admin=1 name= lib-name= lib-ver="])
            try await app.close()
            try await eventually { try await lines(admin).count == 2 }
        }
    }
}
