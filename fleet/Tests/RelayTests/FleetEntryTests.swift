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
    func `a time of the server is in its range, or is none`(_ seconds: String, _ micro: String, _ time: Int64?) {
        let reply = Value.array([seconds, micro].map { .bulk(ByteBuffer(string: $0)) })
        #expect((try? FleetStream.milliseconds(reply)) == time)
    }

    private func order(_ words: [String]) throws -> FleetCommand {
        let words = words.map(ByteBuffer.init(string:))
        return try FleetEntry.order(stride(from: 0, to: words.count, by: 2).map { (words[$0], words[$0 + 1]) })
    }

    static let orders: [([String], FleetCommand)] = [
        (["op", "logout", "user", "alice"], .logOut("alice", session: nil)),
        (["user", "alice", "session", "desk", "op", "logout"], .logOut("alice", session: "desk")),
        // A session may have any name.
        (["op", "logout", "user", "op", "session", "*"], .logOut("op", session: "*")),
        (["op", "purge", "user", "alice"], .purge("alice", profiles: [])),
        (
            ["op", "purge", "user", "alice", "profile", "bob", "profile", "carol"],
            .purge("alice", profiles: ["bob", "carol"])
        ),
        (["op", "logout-all"], .logOutEverybody),
        (["op", "purge-all"], .purgeEverybody),
    ]

    @Test(arguments: orders)
    func `an entry is an order, and an order makes the entry`(_ words: [String], _ expected: FleetCommand) throws {
        #expect(try order(words) == expected)
        #expect(try order(FleetEntry.words(expected).map { String(buffer: $0) }) == expected)
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
        (["op", "logout", "user", "*"], "has '*' as its user, which is nobody"),
        (["op", "logout", "user", "alice", "session", ""], "has a session of 0 bytes: expected 1 to 512"),
        (["op", "logout", "user", "alice", "profile", "bob"], "has a profile, which its op does not take"),
        (["op", "purge", "user", "alice", "session", "desk"], "has a session, which its op does not take"),
        (["op", "purge", "user", "alice", "profile", ""], "has a profile of 0 bytes: expected 1 to 512"),
        (["op", "logout-all", "user", "alice"], "has a user, which its op does not take"),
        (["op", "logout", "user", "alice", "uid", "5"], "has an unknown field"),
        (["op", "logout", "User", "alice"], "has an unknown field"),
    ])
    func `what is not wholly understood is no order, and the reason shows no id`(_ words: [String], _ reason: String) {
        #expect(throws: EntryError(reason)) { try order(words) }
    }

    @Test func `an id is any bytes, 512 at most, and profiles are a thousand at most`() throws {
        let odd = ThumbcacheID(bytes: [0, 0xFF, 0x0A] + [UInt8](repeating: 7, count: 509))
        let words = FleetEntry.words(.purge(odd, profiles: [odd]))
        let fields = stride(from: 0, to: words.count, by: 2).map { (name: words[$0], value: words[$0 + 1]) }
        #expect(try FleetEntry.order(fields) == .purge(odd, profiles: [odd]))
        let long = String(repeating: "x", count: 513)
        #expect(throws: EntryError("has a user of 513 bytes: expected 1 to 512")) {
            try order(["op", "logout", "user", long])
        }
        let most = ["op", "purge", "user", "a"] + (0..<1_000).flatMap { ["profile", "\($0)"] }
        #expect(throws: Never.self) { try order(most) }
        #expect(throws: EntryError("has more than 1000 profiles")) { try order(most + ["profile", "x"]) }
    }

    @Test func `an entry is read as XRANGE gives it, and odd ones are none`() throws {
        func bulk(_ text: String) -> Value { .bulk(ByteBuffer(string: text)) }
        let entry = try #require(StreamEntry(.array([bulk("5-1"), .array([bulk("op"), bulk("logout-all")])])))
        #expect(entry.id == StreamID("5-1"))
        #expect(try entry.order.get() == .logOutEverybody)
        for odd: Value in [
            .null, .array([bulk("5-1")]), .array([bulk("5"), .array([])]), .array([bulk("5-1"), .array([bulk("op")])]),
            .array([bulk("5-1"), .array([bulk("op"), .integer(1)])]),
        ] {
            #expect(StreamEntry(odd) == nil)
        }
    }

    @Test func `ids are compared by both of their numbers, and nothing else is one`() throws {
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
