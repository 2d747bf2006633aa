import ImageOptions
import NIOCore
import Testing

@testable import ThumbcacheProtocol

@Suite struct IdentifierTests {
    /// Bytes that careless code could interpret.
    static let opaque: [[UInt8]] = [
        Array("/".utf8), Array("../../etc/passwd".utf8), Array("..".utf8), [0], Array("a\0b".utf8), [10], [13, 10],
        [0xFF, 0xFE], [0xC3], [0xED, 0xA0, 0x80], Array("$3\r\nGET\r\n".utf8), Array(" ".utf8),
        Array("UID".utf8), Array("SIZE".utf8), Array("CACHED".utf8), Array("META".utf8), Array("5".utf8),
        Array("-1".utf8), Array("**".utf8), Array(repeating: 0xAA, count: 512),
    ]

    /// A profile may also be a single star.
    static let opaqueProfiles = opaque + [Array("*".utf8)]

    private func request(_ arguments: [ByteBuffer]) throws(CommandError) -> Command {
        try Command(Request(arguments))
    }

    @Test(arguments: opaqueProfiles)
    func `F23, F63: any 1 to 512 bytes are a valid profile`(id: [UInt8]) throws {
        let profile = ByteBuffer(bytes: id)
        let alice = bytes("alice")
        #expect(
            try request([bytes("GET"), alice, profile, bytes("META")])
                == .get(with(GetCommand(user: alice, profile: profile)) { $0.meta = true }))
        #expect(
            try request([bytes("MGET"), alice, bytes("3"), profile, bytes("x"), profile, bytes("CACHED")])
                == .mget(
                    with(MGetCommand(user: alice, profiles: [profile, bytes("x"), profile])) { $0.download = .never }))
        #expect(
            try request([bytes("PUT"), alice, profile, bytes("image"), bytes("SIZE"), bytes("5")])
                == .put(with(PutCommand(user: alice, profile: profile, image: bytes("image"))) { $0.size = 5 }))
        #expect(
            try request([bytes("PURGE"), alice, bytes("2"), profile, profile, bytes("UID"), bytes("5")])
                == .purge(
                    with(PurgeCommand(target: .user(alice))) {
                        $0.profiles = [profile, profile]
                        $0.uid = .uid(5)
                    }))
        #expect(
            try request([bytes("STAT"), alice, profile, bytes("SIZE"), bytes("5")])
                == .stat(
                    with(StatCommand(user: alice)) {
                        $0.profile = profile
                        $0.size = 5
                    }))
    }

    @Test(arguments: opaque)
    func `F23, F63: any 1 to 512 bytes are a valid session, and except for a star a valid user`(id: [UInt8]) throws {
        let id = ByteBuffer(bytes: id)
        #expect(
            try request([bytes("LOGIN"), id, bytes("SESSION"), id, bytes("HOLD")])
                == .login(
                    with(LoginCommand(user: id)) {
                        $0.session = id
                        $0.hold = true
                    }))
        #expect(
            try request([bytes("LOGOUT"), id, bytes("SESSION"), bytes("*")])
                == .logout(with(LogoutCommand(target: .user(id))) { $0.session = bytes("*") }))
        #expect(try request([bytes("PURGE"), id]) == .purge(PurgeCommand(target: .user(id))))
        #expect(try request([bytes("STAT"), id]) == .stat(StatCommand(user: id)))
        #expect(try request([bytes("GET"), id, id]) == .get(GetCommand(user: id, profile: id)))
    }

    @Test func `F23: random bytes are valid ids`() throws {
        var random = SystemRandomNumberGenerator()
        for _ in 0..<200 {
            let id = ByteBuffer(
                bytes: (0..<Int.random(in: 2...512, using: &random)).map { _ in
                    UInt8.random(in: 0...255, using: &random)
                })
            #expect(try request([bytes("GET"), id, id]) == .get(GetCommand(user: id, profile: id)))
            #expect(
                try request([bytes("PURGE"), id, bytes("1"), id])
                    == .purge(with(PurgeCommand(target: .user(id))) { $0.profiles = [id] }))
        }
    }

    static let positions: [(what: String, request: @Sendable (String) -> [String])] = [
        ("user", { ["GET", $0, "bob"] }), ("user", { ["MGET", $0, "1", "bob"] }),
        ("user", { ["PUT", $0, "bob", "x"] }),
        ("user", { ["PURGE", $0] }), ("user", { ["STAT", $0] }), ("user", { ["LOGIN", $0] }),
        ("user", { ["LOGOUT", $0] }),
        ("profile", { ["GET", "alice", $0] }), ("profile 2", { ["MGET", "alice", "2", "bob", $0] }),
        ("profile", { ["PUT", "alice", $0, "x"] }), ("profile 1", { ["PURGE", "alice", "1", $0] }),
        ("profile", { ["STAT", "alice", $0] }),
        ("SESSION", { ["LOGIN", "alice", "SESSION", $0] }), ("SESSION", { ["LOGOUT", "alice", "SESSION", $0] }),
    ]

    @Test(arguments: positions.indices)
    func `F23: an id of 0 or 513 bytes is rejected in every position, and 512 bytes are accepted`(position: Int) {
        let (what, request) = Self.positions[position]
        #expect(refusal(request("")) == CommandError(.err, "\(what) is empty: expected 1 to 512 bytes"))
        #expect(
            refusal(request(String(repeating: "x", count: 513)))
                == CommandError(.err, "\(what) has 513 bytes: expected 1 to 512"))
        #expect(refusal(request(String(repeating: "x", count: 512))) == nil)
        // The limit counts bytes, not characters.
        #expect(refusal(request(String(repeating: "\u{e9}", count: 257))) != nil)
    }

    @Test(arguments: ["GET * bob", "MGET * 1 bob", "PUT * bob x", "STAT *", "LOGIN *"])
    func `A star is rejected as a single user`(line: String) {
        #expect(
            refusal(line)
                == CommandError(
                    .err, "user '*' is reserved: it means every user, and only LOGOUT, PURGE and SUBSCRIBE take it"))
    }

    @Test func `The configured limit on ids applies`() {
        #expect(refusal(["GET", "alice", "bob"], limits: RequestLimits(id: 5)) == nil)
        #expect(
            refusal(["GET", "alice", "bobbob"], limits: RequestLimits(id: 5))
                == CommandError(.err, "profile has 6 bytes: expected 1 to 5"))
    }
}
