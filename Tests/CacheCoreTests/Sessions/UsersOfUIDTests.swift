import CacheFakes
import Testing

@testable import CacheCore

/// Who is logged in, known without asking the disk each time (F66).
@Suite struct UsersOfUIDTests {
    private let daemon = Daemon(FakeWorld(lifecycle: ThreadPool(threads: 3)))

    @Test func `F66: the disk is asked once for who is logged in, and never again`() async throws {
        try await daemon.logIn(.alice)
        let next = daemon.restarted()
        for _ in 0..<3 { #expect(try await next.users() == ["alice"]) }
        try await next.logIn(.carol)
        #expect(try await next.users() == ["alice", "carol"])
        _ = try await next.logOut(.alice)
        #expect(try await next.users() == ["carol"])
        _ = try await next.purge(.carol)
        #expect(try await next.logout.logOutAll(uid: 1000).users == 1)
        #expect(next.store.calls(.users) == 1 && next.store.calls(.countUsers) == 0)
        #expect(try await next.users() == [])
        #expect(next.sessions.knownOwners == 0)
    }

    @Test func `I2, F41: log-ins and log-outs while it is read are in what is read`() async throws {
        try await daemon.logIn(.alice)
        let next = Daemon(FakeWorld(store: daemon.store.restarted(), lifecycle: ThreadPool(threads: 3)))
        let gate = next.store.hold(.users)
        async let first = next.users()
        await gate.reached()
        async let second = next.users()
        try await next.logIn(.carol)
        _ = try await next.logOut(.alice)
        next.store.release(.users)
        _ = try await (first, second)
        #expect(try await next.users() == ["carol"])
        #expect(next.store.calls(.users) == 1)
    }

    @Test func `I2, F74: after a log-in that failed the disk says who is logged in`() async throws {
        try await daemon.logIn(.alice)
        #expect(try await daemon.users() == ["alice"])
        // On disk all the same: LOGOUT of all must not pass over it.
        daemon.store.fail(.commitLogin, with: .failed("fsync"), afterEffect: true)
        await #expect(throws: CacheFailure.self) { try await daemon.logIn(.carol) }
        #expect(try await daemon.logout.logOutAll(uid: 1000).users == 2)
        #expect(try await daemon.users() == [])
    }

    @Test func `a log-in over the limit does not have the disk asked anew`() async throws {
        daemon.world.settings.usersPerUID = 1
        try await daemon.logIn(.alice)
        #expect(try await daemon.users() == ["alice"])
        for _ in 0..<3 { await #expect(throws: CacheFailure.self) { try await daemon.logIn(.carol) } }
        #expect(try await daemon.users() == ["alice"])
        #expect(daemon.store.calls(.users) == 1)
    }

    @Test func `I4: who is owed a log-out is still among the users, until that is durable`() async throws {
        try await daemon.logIn(.alice)
        #expect(try await daemon.users() == ["alice"])
        daemon.store.fail(.commitLogout, with: .failed("fsync"))
        await #expect(throws: CacheFailure.self) { try await daemon.logOut(.alice) }
        #expect(try await daemon.users() == ["alice"])
        #expect(try await daemon.logout.logOutAll(uid: 1000).users == 1)
        #expect(try await daemon.users() == [])
    }

    @Test func `a listing that failed is tried again by the next who asks`() async throws {
        try await daemon.logIn(.alice)
        let next = daemon.restarted()
        next.store.fail(.users, with: .failed("getdents64"))
        await #expect(throws: CacheFailure.self) { try await next.users() }
        #expect(try await next.users() == ["alice"])
    }
}
