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

    @Test func `logins count the users on disk once, and again at the limit`() async throws {
        let (bob, dave) = (Owner(uid: 1000, user: OpaqueID("bob")), Owner(uid: 1000, user: OpaqueID("dave")))
        try await daemon.logIn(.alice)
        let next = daemon.restarted()
        next.world.settings.usersPerUID = 3
        for owner in [bob, .carol] { try await next.logIn(owner) }
        #expect(next.store.calls(.countUsers) == 1)
        await #expect(throws: CacheFailure.self) { try await next.logIn(dave) }
        _ = try await next.logOut(.alice)
        try await next.logIn(dave)
        #expect(next.store.calls(.countUsers) == 3)
        await #expect(throws: CacheFailure.self) { try await next.logIn(.alice) }
    }

    @Test func `concurrent logins do not exceed the limit while users are counted`() async throws {
        try await daemon.logIn(.alice)
        let next = Daemon(FakeWorld(store: daemon.store.restarted(), loginPool: ThreadPool(threads: 3)))
        next.world.settings.usersPerUID = 2
        let gate = next.store.hold(.countUsers)
        let logins = [Owner.carol, Owner(uid: 1000, user: OpaqueID("bob"))].map { owner in
            Task { try await next.logIn(owner) }
        }
        await gate.reached()
        next.store.release(.countUsers)
        var failures = 0
        for login in logins { if case .failure = await login.result { failures += 1 } }
        #expect(failures == 1)
        #expect(try await next.users().count == 2)
    }

    @Test func `a login that begins and ends during a count is added to it`() throws {
        let users = UsersOfUID()
        let isReserved = try users.reserve(limit: 1) {
            let isReserved = try users.reserve(limit: 1) { 0 }
            #expect(isReserved)
            users.loggedIn(Owner.carol.user)
            return 0
        }
        #expect(!isReserved)
    }

    @Test func `a login in progress is added to a count`() throws {
        let users = UsersOfUID()
        let count = { 0 }
        #expect(try users.reserve(limit: 2, count: count))
        #expect(try !users.reserve(limit: 1, count: count))
    }

    @Test func `with a list, no login reads the disk, and those in progress count`() async throws {
        let users = UsersOfUID()
        let count = { () throws -> Int in
            Issue.record("counted")
            return 0
        }
        _ = try await users.loggedIn { [] }
        #expect(try users.reserve(limit: 1, count: count))
        #expect(try !users.reserve(limit: 1, count: count))
        users.loggedIn(Owner.carol.user)
        #expect(try !users.reserve(limit: 1, count: count))
        users.loggedOut(Owner.carol.user)
        #expect(try users.reserve(limit: 1, count: count))
    }

    @Test func `a user whose logout is not durable counts towards the limit`() async throws {
        daemon.world.settings.usersPerUID = 1
        try await daemon.logIn(.alice)
        daemon.store.fail(.commitLogout, with: .failed("fsync"), afterEffect: true)
        await #expect(throws: CacheFailure.self) { try await daemon.logOut(.alice) }
        await #expect(throws: CacheFailure.self) { try await daemon.logIn(.carol) }
        _ = try await daemon.logOut(.alice)
        try await daemon.logIn(.carol)
    }

    @Test func `a failed login does not use up the limit`() async throws {
        daemon.world.settings.usersPerUID = 2
        try await daemon.logIn(.alice)
        daemon.store.fail(.commitLogin, with: .failed("fsync"))
        await #expect(throws: CacheFailure.self) { try await daemon.logIn(.carol) }
        try await daemon.logIn(.carol)
        #expect(daemon.store.calls(.countUsers) == 2)
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
