import CacheCore
import CacheFakes
import Foundation
import NIOCore
import Testing
import ThumbcacheProtocol

@testable import DaemonServer

/// Rights of admins, observers and other clients.
@Suite(.timeLimit(.minutes(5))) struct AccessTests {
    private static let other = Peer(uid: 1001, pid: 1, isAdmin: false)

    @Test(arguments: [["LOGOUT", "alice"], ["LOGOUT", "*"], ["PURGE", "alice"], ["PURGE", "*", "1", "bob"]])
    func `F27: only admins can name another uid`(_ command: [String]) async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            let other = try await daemon.connect(as: Self.other)
            let request = { (uid: String) in (command + ["UID", uid]).map { ByteBuffer(string: $0) } }
            let expected = "UID 1000: you are uid 1001, and only admins may name another (access.admins)"
            #expect(try await other.call(request("1000")) == .error(code: "DENIED", message: expected))
            let observer = try await daemon.connect(as: TestDaemon.observer)
            #expect(try await observer.call(request("1000")).code == "DENIED")
            #expect(try await client.call("USERS") == .array([bulk("alice")]))
            // Naming the own uid needs no right.
            #expect(try await client.call(request("1000"))["epoch"] != nil)
            _ = try await client.call("LOGIN", "alice")
            let admin = try await daemon.connect(as: TestDaemon.admin)
            #expect(try await admin.call(request("1000"))["epoch"] != nil)
            let users: Value = command[0] == "LOGOUT" ? .array([]) : .array([bulk("alice")])
            #expect(try await client.call("USERS") == users)
        }
    }

    @Test(arguments: [["LOGOUT", "alice"], ["LOGOUT", "*"], ["PURGE", "alice"], ["PURGE", "*", "1", "bob"]])
    func `F27: only admins can name all uids`(
        _ command: [String]
    ) async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            let request = (command + ["UID", "*"]).map { ByteBuffer(string: $0) }
            let expected = "UID *: you are uid 1000, and only admins may name another (access.admins)"
            #expect(try await client.call(request) == .error(code: "DENIED", message: expected))
            #expect(try await client.call("USERS") == .array([bulk("alice")]))
            let other = try await daemon.connect(as: Self.other)
            #expect(try await other.call("LOGIN", "alice") == .ok)
            let admin = try await daemon.connect(as: TestDaemon.admin)
            #expect(try await admin.call(request)["users"] == .integer(2))
            let users: Value = command[0] == "LOGOUT" ? .array([]) : .array([bulk("alice")])
            for client in [client, other] { #expect(try await client.call("USERS") == users) }
        }
    }

    @Test func `a held session that LOGOUT ended is not released again`() async throws {
        try await TestDaemon.run { daemon in
            let admin = try await daemon.connect(as: TestDaemon.admin)
            #expect(try await admin.call("LOGIN", "alice", "HOLD") == .ok)
            #expect(try await admin.call("LOGOUT", "alice", "UID", "*")["users"] == .integer(1))
            // A later login of another connection: the end of the first holder does not end it.
            let other = try await daemon.connect(as: TestDaemon.admin)
            #expect(try await other.call("LOGIN", "alice") == .ok)
            #expect(try await admin.call("QUIT") == .ok)
            #expect(try await other.call("USERS") == .array([bulk("alice")]))
        }
    }

    @Test(arguments: [other, TestDaemon.admin])
    func `F28, I1: users of another uid are invisible, also to admins`(
        _ peer: Peer
    ) async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            let put = ["PUT", "alice", "bob"].map { ByteBuffer(string: $0) } + [SampleImage.png("bob")]
            #expect(try await client.call(put) == .ok)
            let other = try await daemon.connect(as: peer)
            for user in ["alice", "nobody"] {
                #expect(try await other.call("GET", user, "bob").code == "NOLOGIN")
                #expect(try await other.call("MGET", user, "1", "bob").code == "NOLOGIN")
                #expect(try await other.wire("STAT", user, "bob") == "*-1\r\n")
                #expect(try await other.wire("STAT", user) == "*-1\r\n")
                #expect(try await other.call("PURGE", user)["users"] == .integer(0))
                #expect(try await other.call("LOGOUT", user)["users"] == .integer(0))
            }
            #expect(try await other.call("USERS") == .array([]))
            #expect(try await other.call("LOGOUT", "*")["users"] == .integer(0))
            // A user of the same name with another uid is another user.
            #expect(try await other.call("LOGIN", "alice") == .ok)
            #expect(try await other.call("GET", "alice", "bob", "CACHED") == .null)
            #expect(try await other.call("LOGOUT", "alice")["users"] == .integer(1))
            #expect(try await client.call("GET", "alice", "bob") == image("bob"))
        }
    }

    @Test(arguments: [65_534, UInt32.max])
    func `F29: a peer with an unmapped uid is refused, admin or not`(uid: UInt32) throws {
        for isAdmin in [true, false] {
            let error = #expect(throws: CommandError.self) {
                try Peer(uid: uid, pid: 1, isAdmin: isAdmin).rejectingUnmapped(overflowUID: 65_534)
            }
            #expect(error?.code == .denied)
        }
        let defaultPeer = TestDaemon.defaultPeer
        #expect(try defaultPeer.rejectingUnmapped(overflowUID: 65_534) == defaultPeer)
        // The overflow uid of another system may be a real uid here.
        #expect(try defaultPeer.rejectingUnmapped(overflowUID: 7) == defaultPeer)
    }

    @Test func `the kernel reports the peer`() async throws {
        try await TestDaemon.run {
            $0.admins = AccessRule(uids: [getuid()], gids: [])
            $0.info = ServerInfo([
                "peer": { peer, _ in [("admin", "\(peer.isAdmin)"), ("uid", "\(peer.uid)"), ("pid", "\(peer.pid)")] }
            ])
        } _: { daemon in
            let client = try await daemon.connect()
            let text = "# Peer\r\nadmin:true\r\nuid:\(getuid())\r\npid:\(getpid())\r\n"
            #expect(try await client.call("INFO") == bulk(text))
        }
    }

    @Test(arguments: [true, false])
    func `a member of an admin group is an admin`(_ isMember: Bool) async throws {
        // Only the primary group; the end-to-end tests cover supplementary groups.
        let group = isMember ? getgid() : getgid() &+ 1_000_000
        try await TestDaemon.run {
            $0.admins = AccessRule(uids: [], gids: [group])
            $0.info = ServerInfo(["it": { peer, _ in [("admin", "\(peer.isAdmin)")] }])
        } _: { daemon in
            let client = try await daemon.connect()
            #expect(try await client.call("INFO") == bulk("# It\r\nadmin:\(isMember)\r\n"))
        }
    }

    @Test(arguments: [
        (AccessRule(), AccessRule(), "false,false"), (AccessRule(uids: [getuid()]), AccessRule(), "true,true"),
        (AccessRule(), AccessRule(uids: [getuid()]), "false,true"),
        (AccessRule(), AccessRule(gids: [getgid()]), "false,true"),
        (AccessRule(), AccessRule(uids: [getuid() &+ 1], gids: [getgid() &+ 1_000_000]), "false,false"),
    ])
    func `every admin is an observer, but not the reverse`(
        _ admins: AccessRule, _ observers: AccessRule, _ rights: String
    ) async throws {
        try await TestDaemon.run {
            ($0.admins, $0.observers) = (admins, observers)
            $0.info = ServerInfo(["it": { peer, _ in [("rights", "\(peer.isAdmin),\(peer.isObserver)")] }])
        } _: { daemon in
            let client = try await daemon.connect()
            #expect(try await client.call("INFO") == bulk("# It\r\nrights:\(rights)\r\n"))
        }
    }
}
