import CacheFakes
import Testing

@testable import CacheCore

/// The list of logged-in users, read from disk once (F66).
@Suite struct UsersOfUIDTests {
    private let daemon = Daemon(FakeWorld(loginPool: ThreadPool(threads: 3)))

    @Test func `F66: the list is read from disk once`() async throws {
        try await daemon.logIn(.alice)
        let next = daemon.restarted()
        for _ in 0..<3 { #expect(try await next.users() == ["alice"]) }
        try await next.logIn(.carol)
        #expect(try await next.users() == ["alice", "carol"])
        _ = try await next.logOut(.alice)
        #expect(try await next.users() == ["carol"])
        _ = try await next.purge(.carol)
        #expect(try await next.invalidationService.logOutAll(uid: 1000).users == 1)
        #expect(next.store.calls(.users) == 1 && next.store.calls(.countUsers) == 0)
        #expect(try await next.users() == [])
        #expect(next.sessions.knownOwners == 0)
    }

    @Test func `I2, F41: the list includes logins and logouts that happen while it is read`() async throws {
        try await daemon.logIn(.alice)
        let next = Daemon(FakeWorld(store: daemon.store.restarted(), loginPool: ThreadPool(threads: 3)))
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

    @Test func `I2, F74: after a failed login the list is read again`() async throws {
        try await daemon.logIn(.alice)
        #expect(try await daemon.users() == ["alice"])
        // The login is on disk: LOGOUT of all must include it.
        daemon.store.fail(.commitLogin, with: .failed("fsync"), afterEffect: true)
        await #expect(throws: CacheFailure.self) { try await daemon.logIn(.carol) }
        #expect(try await daemon.invalidationService.logOutAll(uid: 1000).users == 2)
        #expect(try await daemon.users() == [])
    }

    @Test func `a login over the limit does not cause another reading`() async throws {
        daemon.world.settings.usersPerUID = 1
        try await daemon.logIn(.alice)
        #expect(try await daemon.users() == ["alice"])
        for _ in 0..<3 { await #expect(throws: CacheFailure.self) { try await daemon.logIn(.carol) } }
        #expect(try await daemon.users() == ["alice"])
        #expect(daemon.store.calls(.users) == 1)
    }

    @Test func `I4: a user whose logout is pending is listed until it is durable`() async throws {
        try await daemon.logIn(.alice)
        #expect(try await daemon.users() == ["alice"])
        daemon.store.fail(.commitLogout, with: .failed("fsync"))
        await #expect(throws: CacheFailure.self) { try await daemon.logOut(.alice) }
        #expect(try await daemon.users() == ["alice"])
        #expect(try await daemon.invalidationService.logOutAll(uid: 1000).users == 1)
        #expect(try await daemon.users() == [])
    }

    @Test func `a failed reading is repeated by the next caller`() async throws {
        try await daemon.logIn(.alice)
        let next = daemon.restarted()
        next.store.fail(.users, with: .failed("getdents64"))
        await #expect(throws: CacheFailure.self) { try await next.users() }
        #expect(try await next.users() == ["alice"])
    }
}
