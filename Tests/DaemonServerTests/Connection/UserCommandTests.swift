import CacheCore
import CacheFakes
import LinuxSupport
import NIOCore
import Testing
import ThumbcacheProtocol

@testable import DaemonServer

/// LOGIN, LOGOUT, PURGE and USERS.
@Suite(.timeLimit(.minutes(5))) struct UserCommandTests {
    /// The values of a receipt in the order of its keys; nil for null.
    private func numbers(_ receipt: Value) -> [Int?]? {
        guard let entries = receipt.entries else { return nil }
        #expect(entries.map(\.key.text) == ["users", "images", "bytes", "cancelled", "sessions", "epoch"])
        return entries.map(\.value.number)
    }

    @Test(arguments: [RESPVersion.two, .three])
    func `a receipt has the counts of an invalidation and a growing epoch`(_ version: RESPVersion) async throws {
        try await TestDaemon.run { daemon in
            let base = 1 << 32
            let client = try await daemon.connectWithAlice(version)
            let put = ["PUT", "alice", "bob"].map { ByteBuffer(string: $0) } + [SampleImage.png("bob")]
            #expect(try await client.call(put) == .ok)
            #expect(numbers(try await client.call("PURGE", "alice", "1", "bob")) == [1, 1, 128, 0, 1, base + 2])
            #expect(try await client.call(put) == .ok)
            #expect(numbers(try await client.call("PURGE", "alice")) == [1, 1, 128, 0, 1, base + 3])
            #expect(numbers(try await client.call("PURGE", "alice")) == [1, 0, 0, 0, 1, base + 4])
            #expect(numbers(try await client.call("LOGOUT", "alice")) == [1, 0, 0, 0, 0, base + 5])
            #expect(numbers(try await client.call("LOGOUT", "alice")) == [0, 0, 0, 0, 0, base + 6])
            #expect(numbers(try await client.call("PURGE", "alice")) == [0, 0, 0, 0, 0, base + 7])
            let wire = try await client.wire("LOGOUT", "alice")
            #expect(wire.hasPrefix(version == .two ? "*12\r\n$5\r\nusers\r\n:0\r\n" : "%6\r\n$5\r\nusers\r\n:0\r\n"))
        }
    }

    @Test func `F66: USERS is rendered again only after a login or logout`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connect()
            #expect(try await client.call("LOGIN", "alice") == .ok)
            for _ in 0..<3 { #expect(try await client.call("USERS") == .array([bulk("alice")])) }
            let held = daemon.budget.bytes
            #expect(held > 0)
            #expect(try await client.call("LOGIN", "bob") == .ok)
            let both = try await client.call("USERS").elements ?? []
            #expect(Set(both.compactMap(\.text)) == ["alice", "bob"])
            _ = try await client.call("LOGOUT", "alice")
            #expect(try await client.call("USERS") == .array([bulk("bob")]))
            #expect(daemon.store.calls(.users) == 1)
            _ = try await client.call("LOGOUT", "bob")
            #expect(try await client.call("USERS") == .array([]))
        }
    }

    @Test func `USERS lists logged-in users`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            #expect(try await client.call("LOGIN", "bob", "HOLD") == .ok)
            let users = try await client.call("USERS").elements ?? []
            #expect(Set(users.compactMap(\.text)) == ["alice", "bob"])
            #expect(try await client.call("LOGOUT", "*")["users"] == .integer(2))
            #expect(try await client.call("USERS") == .array([]))
        }
    }

    @Test func `F45: the cache lives until the last of its sessions ends`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connect()
            #expect(try await client.call("LOGIN", "alice", "SESSION", "one") == .ok)
            #expect(try await client.call("LOGIN", "alice", "SESSION", "two") == .ok)
            #expect(try await client.call("LOGOUT", "alice", "SESSION", "one")["sessions"] == .integer(1))
            #expect(try await client.call("GET", "alice", "bob", "CACHED") == .null)
            #expect(try await client.call("LOGOUT", "alice", "SESSION", "two")["users"] == .integer(1))
            #expect(try await client.call("GET", "alice", "bob", "CACHED").code == "NOLOGIN")
        }
    }

    @Test func `the errors of LOGIN name an invalid origin, second origin or refresh token`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connect()
            #expect(try await client.call("LOGIN", "alice", "ORIGIN", "nonesuch").code == "ERR")
            #expect(try await client.call("LOGIN", "alice", "REFRESH", "abc").code == "ERR")
            #expect(try await client.call("USERS") == .array([]))
            #expect(try await client.call("LOGIN", "alice", "ORIGIN", "default", "TOKEN", "abc") == .ok)
            #expect(daemon.store.login(of: TestDaemon.alice)?.tokens.access == Secret(Array("abc".utf8)))
        }
    }

    @Test func `I4: a logout that is not durable is IOERR, and the user stays closed`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            daemon.store.fail(.commitLogout, times: 2)
            #expect(try await client.call("LOGOUT", "alice").code == "IOERR")
            #expect(try await client.call("GET", "alice", "bob").code == "IOERR")
            #expect(try await client.call("STAT", "alice").code == "IOERR")
            #expect(try await client.call("LOGIN", "alice").code == "IOERR")
            #expect(try await client.call("LOGOUT", "alice").code == "IOERR")
            #expect(try await client.call("LOGOUT", "alice")["users"] == .integer(1))
            #expect(try await client.call("GET", "alice", "bob").code == "NOLOGIN")
        }
    }
}
