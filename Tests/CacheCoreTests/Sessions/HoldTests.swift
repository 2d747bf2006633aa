import CacheFakes
import NIOCore
import Testing

@testable import CacheCore

/// LOGIN … HOLD: sessions that end with their connection (F59).
@Suite struct HoldTests {
    private let daemon = Daemon()

    @Test func `F59: the user is logged out when the connection that holds the last session closes`() async throws {
        try await daemon.logIn(.alice, heldBy: 1)
        try await daemon.put(.alice, "bob", "mine")
        try await daemon.release(.alice, connection: 1)
        #expect(await daemon.get(.alice, "bob") == "notLoggedIn")
        #expect(daemon.store.login(of: .alice) == nil)
        #expect(daemon.sessions.knownOwners == 0)
    }

    @Test func `F59: the user stays logged in while another connection or session remains`() async throws {
        try await daemon.logIn(.alice, heldBy: 1)
        try await daemon.logIn(.alice, heldBy: 2)
        try await daemon.logIn(.alice, session: "kept")
        try await daemon.release(.alice, connection: 1)
        #expect(try await daemon.sessions.status(.alice)?.sessions == 2)
        try await daemon.release(.alice, connection: 2)
        #expect(try await daemon.sessions.status(.alice)?.sessions == 1)
        #expect(try await daemon.users() == ["alice"])
    }

    @Test func `a connection that holds no session ends none`() async throws {
        try await daemon.logIn(.alice, heldBy: 1)
        try await daemon.release(.alice, connection: 2)
        try await daemon.release(.alice, session: "other", connection: 1)
        #expect(try await daemon.users() == ["alice"])
        try await daemon.release(.carol, connection: 1)
    }

    @Test func `a session that is also durable does not end with a connection`() async throws {
        try await daemon.logIn(.alice)
        try await daemon.logIn(.alice, heldBy: 1)
        try await daemon.release(.alice, connection: 1)
        #expect(try await daemon.users() == ["alice"])
    }

    @Test func `a logout ends held sessions; their connection does not end a later login`() async throws {
        try await daemon.logIn(.alice, heldBy: 1)
        _ = try await daemon.logOut(.alice)
        try await daemon.logIn(.alice, heldBy: 2)
        try await daemon.release(.alice, connection: 1)
        #expect(try await daemon.users() == ["alice"])
    }

    @Test func `F59: a held session does not survive a restart, a durable one does`() async throws {
        try await daemon.logIn(.alice, heldBy: 1)
        try await daemon.logIn(.carol, session: "kept")
        try await daemon.logIn(.carol, session: "held", heldBy: 1)
        let next = daemon.restarted()
        #expect(await next.get(.alice, "bob") == "notLoggedIn")
        #expect(try await next.sessions.status(.carol)?.sessions == 1)
    }

    @Test func `F59: a purge keeps held sessions`() async throws {
        try await daemon.logIn(.alice, heldBy: 1)
        #expect(try await daemon.purge(.alice).sessions == 1)
        try await daemon.release(.alice, connection: 1)
        #expect(await daemon.get(.alice, "bob") == "notLoggedIn")
    }

    @Test func `F59, F61: a connection that closes while a purge is pending ends its session`() async throws {
        try await daemon.logIn(.alice, heldBy: 1)
        daemon.store.fail(.commitPurge)
        await #expect(throws: CacheFailure.inputOutput("EIO")) { try await daemon.purge(.alice) }
        try await daemon.release(.alice, connection: 1)
        #expect(await daemon.get(.alice, "bob") == "notLoggedIn")
        #expect(daemon.store.login(of: .alice) == nil)
        #expect(daemon.world.time.timers == 0)
    }
}
