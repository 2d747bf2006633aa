import Fleet
import NIOCore
import Testing
@_spi(Wire) import Thumbcache
import ThumbcacheProtocol

@testable import thumbcached_relay

@Suite struct FleetEntryTests {
    @Test(arguments: [
        ("1795445641", "86999", 1_795_445_641_086 as Int64?), ("0", "0", 0), ("\(Int64.max)", "999999", .max),
        ("\(Int64.min)", "0", nil), ("-1", "0", nil), ("1", "1000000", nil), ("1", "-1", nil), ("x", "1", nil),
        ("9223372036854775808", "0", nil),
    ])
    func `a server time out of range is invalid`(_ seconds: String, _ micro: String, _ time: Int64?) {
        let reply = Value.array([seconds, micro].map { .bulk(ByteBuffer(string: $0)) })
        #expect((try? FleetStream.milliseconds(reply)) == time)
    }

    private func command(_ words: [String]) throws -> FleetCommand {
        let words = words.map(ByteBuffer.init(string:))
        return try FleetEntry.command(stride(from: 0, to: words.count, by: 2).map { (words[$0], words[$0 + 1]) })
    }

    static let commands: [([String], FleetCommand)] = [
        (["op", "logout", "user", "alice"], .logOut("alice", session: nil)),
        (["user", "alice", "session", "desk", "op", "logout"], .logOut("alice", session: "desk")),
        // A session may have any name.
        (["op", "logout", "user", "op", "session", "*"], .logOut("op", session: "*")),
        (["op", "purge", "user", "alice"], .purge("alice", profiles: [])),
        (
            ["op", "purge", "user", "alice", "profile", "bob", "profile", "carol"],
            .purge("alice", profiles: ["bob", "carol"])
        ),
        (["op", "logout-all"], .logOutAll),
        (["op", "purge-all"], .purgeAll),
    ]

    @Test(arguments: commands)
    func `commands are encoded to entries and decoded from them`(_ words: [String], _ expected: FleetCommand) throws {
        #expect(try command(words) == expected)
        #expect(try command(FleetEntry.words(expected).map { String(buffer: $0) }) == expected)
    }

    @Test(arguments: [
        ([], "lacks op"),
        (["user", "alice"], "lacks op"),
        (["op", "logout"], "lacks user"),
        (["op", "purge", "profile", "bob"], "lacks user"),
        (["op", "login", "user", "alice"], "has an unknown op"),
        (["op", "LOGOUT", "user", "alice"], "has an unknown op"),
        (["op", "logout", "op", "logout", "user", "alice"], "has op more than once"),
        (["op", "logout", "user", "alice", "user", "bob"], "has user more than once"),
        (["op", "logout", "user", "alice", "session", "a", "session", "b"], "has session more than once"),
        (["op", "logout", "user", ""], "has a user of 0 bytes: expected 1 to 512"),
        (["op", "logout", "user", "*"], "has the invalid user '*'"),
        (["op", "logout", "user", "alice", "session", ""], "has a session of 0 bytes: expected 1 to 512"),
        (["op", "logout", "user", "alice", "profile", "bob"], "has a profile, which its op does not allow"),
        (["op", "purge", "user", "alice", "session", "desk"], "has a session, which its op does not allow"),
        (["op", "purge", "user", "alice", "profile", ""], "has a profile of 0 bytes: expected 1 to 512"),
        (["op", "logout-all", "user", "alice"], "has a user, which its op does not allow"),
        (["op", "logout", "user", "alice", "uid", "5"], "has an unknown field"),
        (["op", "logout", "User", "alice"], "has an unknown field"),
    ])
    func `invalid entries are rejected, and the reason contains no user`(_ words: [String], _ reason: String) {
        #expect(throws: EntryError(reason)) { try command(words) }
    }

    @Test func `an entry has users of up to 512 bytes and up to 1,000 profiles`() throws {
        let odd = ThumbcacheID(bytes: [0, 0xFF, 0x0A] + [UInt8](repeating: 7, count: 509))
        let words = FleetEntry.words(.purge(odd, profiles: [odd]))
        let fields = stride(from: 0, to: words.count, by: 2).map { (name: words[$0], value: words[$0 + 1]) }
        #expect(try FleetEntry.command(fields) == .purge(odd, profiles: [odd]))
        let long = String(repeating: "x", count: 513)
        #expect(throws: EntryError("has a user of 513 bytes: expected 1 to 512")) {
            try command(["op", "logout", "user", long])
        }
        let most = ["op", "purge", "user", "a"] + (0..<1_000).flatMap { ["profile", "\($0)"] }
        #expect(throws: Never.self) { try command(most) }
        #expect(throws: EntryError("has more than 1000 profiles")) { try command(most + ["profile", "x"]) }
    }

    @Test func `entries are parsed from XRANGE replies; malformed ones are rejected`() throws {
        func bulk(_ text: String) -> Value { .bulk(ByteBuffer(string: text)) }
        let entry = try #require(StreamEntry(.array([bulk("5-1"), .array([bulk("op"), bulk("logout-all")])])))
        #expect(entry.id == StreamID("5-1"))
        #expect(try entry.command.get() == .logOutAll)
        for odd: Value in [
            .null, .array([bulk("5-1")]), .array([bulk("5"), .array([])]), .array([bulk("5-1"), .array([bulk("op")])]),
            .array([bulk("5-1"), .array([bulk("op"), .integer(1)])]),
        ] {
            #expect(StreamEntry(odd) == nil)
        }
    }

    @Test func `stream ids are compared by both numbers; other texts are invalid`() throws {
        let sorted = ["0-0", "0-1", "1-0", "1-18446744073709551615", "2-0", "18446744073709551615-0"]
        let ids = try sorted.map { try #require(StreamID($0)) }
        #expect(ids.shuffled().sorted() == ids)
        #expect(ids.map(\.description) == sorted)
        #expect(StreamID("2-0")?.predecessor == StreamID("1-18446744073709551615"))
        #expect(StreamID("2-7")?.predecessor == StreamID("2-6"))
        #expect(StreamID.zero.predecessor == .zero)
        for odd in ["", "5", "-", "5-", "-5", "1-2-3", "01-2", "+1-2", "1-x", "18446744073709551616-0"] {
            #expect(StreamID(odd) == nil, "\(odd)")
        }
    }
}
