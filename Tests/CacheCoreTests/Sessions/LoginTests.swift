import CacheFakes
import LinuxSupport
import NIOCore
import Testing

@testable import CacheCore

@Suite struct LoginTests {
    private let daemon = Daemon()

    @Test func `I2: without a login, GET gets NOLOGIN and unknown users occupy no memory`() async throws {
        for number in 0..<50 {
            #expect(await daemon.get(Owner(uid: 1000, user: OpaqueID("\(number)")), "bob") == "notLoggedIn")
        }
        #expect(daemon.sessions.knownOwners == 0)
    }

    @Test func `a login opens the cache, which only that uid and user can read`() async throws {
        try await daemon.logIn(.alice)
        try await daemon.logIn(.carol)
        try await daemon.logIn(.otherAlice)
        try await daemon.put(.alice, "bob", "mine")
        #expect(await daemon.get(.alice, "bob", cached: true) == "mine from memory")
        // I1, F28: another uid's user and profile are as if they did not exist.
        #expect(await daemon.get(.carol, "bob", cached: true) == "null")
        #expect(await daemon.get(.otherAlice, "bob", cached: true) == "null")
    }

    @Test func `I4: a login survives a restart with its images, origin and token`() async throws {
        try await daemon.logIn(.alice, origin: "default", token: Secret([7]))
        try await daemon.put(.alice, "bob", "mine")
        let next = daemon.restarted()
        #expect(await next.get(.alice, "bob") == "mine from disk")
        _ = try await next.sessions.cache(.alice).get(ImageQuery(imageKey: ImageKey(profile: OpaqueID("eve")))) { _ in }
        #expect(next.fetcher.downloads.map(\.request.token) == [Secret([7])])
        #expect(try await next.sessions.status(.alice)?.sessions == 1)
    }

    @Test func `a login that cannot be made durable fails`() async throws {
        daemon.store.fail(.commitLogin, with: .noSpace("disk full"))
        await #expect(throws: CacheFailure.noSpace("disk full")) { try await daemon.logIn(.alice) }
        #expect(await daemon.get(.alice, "bob") == "notLoggedIn")
        #expect(daemon.sessions.knownOwners == 0)
        try await daemon.logIn(.alice)
        #expect(await daemon.get(.alice, "bob", cached: true) == "null")
    }

    @Test func `I8: users per uid and sessions per user are limited separately`() async throws {
        daemon.world.settings.usersPerUID = 1
        daemon.world.settings.sessionsPerUser = 2
        try await daemon.logIn(.alice)
        await #expect(
            throws: CacheFailure.busy("limits.users-per-uid: 1 users are logged in or logging in; log one out")
        ) { try await daemon.logIn(.carol) }
        try await daemon.logIn(.otherAlice)
        try await daemon.logIn(.alice, session: "second", heldBy: 1)
        await #expect(
            throws: CacheFailure.busy("limits.sessions-per-user: 2 sessions; log one out")
        ) { try await daemon.logIn(.alice, session: "third") }
        // An open session does not count again.
        try await daemon.logIn(.alice, session: "second", heldBy: 2)
        _ = try await daemon.logOut(.alice, session: "default")
        try await daemon.logIn(.alice, session: "third")
    }

    @Test func `the error about an unknown origin lists the configured ones`() async throws {
        daemon.world.settings.origins["work"] = FakeWorld.origin
        await #expect(
            throws: CacheFailure.invalid("no origin of that name is configured; configured: default, work")
        ) { try await daemon.logIn(.alice, origin: "play") }
    }

    @Test func `a login to an open cache may name the same origin or none, but not another`() async throws {
        daemon.world.settings.origins["work"] = FakeWorld.origin
        try await daemon.logIn(.alice)
        try await daemon.logIn(.alice, origin: "default")
        await #expect(throws: CacheFailure.self) { try await daemon.logIn(.alice, origin: "work") }
        try await daemon.logIn(.carol, origin: "work")
        try await daemon.logIn(.carol)
        #expect(try await daemon.sessions.status(.carol)?.origin == "work")
    }

    @Test func `a login keeps omitted options; a new token is used and stored`() async throws {
        try await daemon.logIn(.alice, token: Secret([1]))
        try await daemon.logIn(.alice, session: "second")
        #expect(daemon.store.login(of: .alice)?.tokens.access == Secret([1]))
        try await daemon.logIn(.alice, token: Secret([2]))
        #expect(try await daemon.sessions.cache(.alice).credentials.token == Secret([2]))
        #expect(daemon.store.login(of: .alice)?.tokens.access == Secret([2]))
    }

    @Test func `a session that cannot be made durable fails`() async throws {
        try await daemon.logIn(.alice)
        daemon.store.fail(.commitSessions)
        await #expect(throws: CacheFailure.inputOutput("EIO")) { try await daemon.logIn(.alice, session: "second") }
        #expect(try await daemon.sessions.status(.alice)?.sessions == 1)
    }

    @Test func `a second login keeps an image that was just stored`() async throws {
        try await daemon.logIn(.alice)
        try await daemon.put(.alice, "bob", "mine")
        try await daemon.logIn(.alice, session: "second")
        #expect(await daemon.get(.alice, "bob") == "mine from memory")
        #expect(daemon.store.calls(.commitLogin) == 1)
    }

    @Test func `an unreadable login gets IOERR until it can be read`() async throws {
        try await daemon.logIn(.alice)
        let next = daemon.restarted()
        next.store.fail(.load)
        #expect(await next.get(.alice, "bob") == "inputOutput(\"EIO\")")
        #expect(await next.get(.alice, "bob", cached: true) == "null")
    }

    @Test func `USERS lists the logged-in users of the uid, in memory or on disk`() async throws {
        try await daemon.logIn(.alice)
        try await daemon.logIn(.carol, heldBy: 1)
        try await daemon.logIn(.otherAlice)
        #expect(try await daemon.users() == ["alice", "carol"])
        _ = try await daemon.logOut(.alice)
        #expect(try await daemon.users() == ["carol"])
        #expect(try await daemon.users(7) == [])
        #expect(try await daemon.restarted().users(1001) == ["alice"])
    }

    @Test func `STAT of a user reports the stored images; null if not logged in`() async throws {
        #expect(try await daemon.sessions.status(.alice) == nil)
        try await daemon.logIn(.alice)
        try await daemon.put(.alice, "bob", "mine")
        let status = try #require(try await daemon.sessions.status(.alice))
        #expect(status.usage == Usage(images: 1, bytes: 128))
        #expect(status.sessions == 1)
        #expect(status.loggedInAt == daemon.world.time.now)
        // Not counted yet after a start.
        let later = try await daemon.restarted().sessions.status(.alice)
        #expect(later != nil && later?.usage == nil)
    }
}
