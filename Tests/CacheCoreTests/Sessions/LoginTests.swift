import CacheFakes
import LinuxSupport
import NIOCore
import Testing

@testable import CacheCore

@Suite struct LoginTests {
    private let daemon = Daemon()

    @Test func `I2: before a log-in there is nothing: GET is NOLOGIN, and strangers fill no memory`() async throws {
        for number in 0..<50 {
            #expect(await daemon.get(Owner(uid: 1000, user: OpaqueID("\(number)")), "bob") == "notLoggedIn")
        }
        #expect(daemon.sessions.knownOwners == 0)
    }

    @Test func `a log-in opens the cache; what is put is there for that uid and user, and for nobody else`()
        async throws
    {
        try await daemon.logIn(.alice)
        try await daemon.logIn(.carol)
        try await daemon.logIn(.otherAlice)
        try await daemon.put(.alice, "bob", "mine")
        #expect(await daemon.get(.alice, "bob", cached: true) == "mine from memory")
        // I1, F28: another uid's user and profile are as if they did not exist.
        #expect(await daemon.get(.carol, "bob", cached: true) == "null")
        #expect(await daemon.get(.otherAlice, "bob", cached: true) == "null")
    }

    @Test func `I4: who is logged in stays so across a restart, with images, origin and token`() async throws {
        try await daemon.logIn(.alice, origin: "default", token: Secret([7]))
        try await daemon.put(.alice, "bob", "mine")
        let next = daemon.restarted()
        #expect(await next.get(.alice, "bob") == "mine from disk")
        _ = try await next.sessions.cache(.alice).get(ImageQuery(imageKey: ImageKey(profile: OpaqueID("eve")))) { _ in }
        #expect(next.fetcher.downloads.map(\.request.token) == [Secret([7])])
        #expect(try await next.sessions.status(.alice)?.sessions == 1)
    }

    @Test func `a log-in that cannot be made durable is an error, and nobody is logged in`() async throws {
        daemon.store.fail(.commitLogin, with: .noSpace("disk full"))
        await #expect(throws: CacheFailure.noSpace("disk full")) { try await daemon.logIn(.alice) }
        #expect(await daemon.get(.alice, "bob") == "notLoggedIn")
        #expect(daemon.sessions.knownOwners == 0)
        try await daemon.logIn(.alice)
        #expect(await daemon.get(.alice, "bob", cached: true) == "null")
    }

    @Test func `I8: users per uid and sessions per user have limits, which count nobody else's`() async throws {
        daemon.world.settings.usersPerUID = 1
        daemon.world.settings.sessionsPerUser = 2
        try await daemon.logIn(.alice)
        await #expect(
            throws: CacheFailure.busy("this uid has 1 users logged in, the limit users-per-uid: log one out")
        ) { try await daemon.logIn(.carol) }
        try await daemon.logIn(.otherAlice)
        try await daemon.logIn(.alice, session: "second", heldBy: 1)
        await #expect(
            throws: CacheFailure.busy("this user has 2 sessions, the limit sessions-per-user: end one")
        ) { try await daemon.logIn(.alice, session: "third") }
        // One that is open already is no further one.
        try await daemon.logIn(.alice, session: "second", heldBy: 2)
        _ = try await daemon.logOut(.alice, session: "default")
        try await daemon.logIn(.alice, session: "third")
    }

    @Test func `an origin that is not configured is an error that names those that are`() async throws {
        daemon.world.settings.origins["work"] = FakeWorld.origin
        await #expect(
            throws: CacheFailure.invalid("no origin of that name is configured; configured: default, work")
        ) { try await daemon.logIn(.alice, origin: "play") }
    }

    @Test func `another origin on an open cache is an error; the same, or none, is not`() async throws {
        daemon.world.settings.origins["work"] = FakeWorld.origin
        try await daemon.logIn(.alice)
        try await daemon.logIn(.alice, origin: "default")
        await #expect(throws: CacheFailure.self) { try await daemon.logIn(.alice, origin: "work") }
        try await daemon.logIn(.carol, origin: "work")
        try await daemon.logIn(.carol)
        #expect(try await daemon.sessions.status(.carol)?.origin == "work")
    }

    @Test func `options not given keep what was set; a new token is used from then on and kept`() async throws {
        try await daemon.logIn(.alice, token: Secret([1]))
        try await daemon.logIn(.alice, session: "second")
        #expect(daemon.store.login(of: .alice)?.tokens.access == Secret([1]))
        try await daemon.logIn(.alice, token: Secret([2]))
        #expect(try await daemon.sessions.cache(.alice).account.token == Secret([2]))
        #expect(daemon.store.login(of: .alice)?.tokens.access == Secret([2]))
    }

    @Test func `a session that cannot be kept is an error, and is not there`() async throws {
        try await daemon.logIn(.alice)
        daemon.store.fail(.commitSessions)
        await #expect(throws: CacheFailure.inputOutput("EIO")) { try await daemon.logIn(.alice, session: "second") }
        #expect(try await daemon.sessions.status(.alice)?.sessions == 1)
    }

    @Test func `an image put just before a second log-in is still there after it`() async throws {
        try await daemon.logIn(.alice)
        try await daemon.put(.alice, "bob", "mine")
        try await daemon.logIn(.alice, session: "second")
        #expect(await daemon.get(.alice, "bob") == "mine from memory")
        #expect(daemon.store.calls(.commitLogin) == 1)
    }

    @Test func `a log-in that cannot be read is IOERR, and works again when it can`() async throws {
        try await daemon.logIn(.alice)
        let next = daemon.restarted()
        next.store.fail(.load)
        #expect(await next.get(.alice, "bob") == "inputOutput(\"EIO\")")
        #expect(await next.get(.alice, "bob", cached: true) == "null")
    }

    @Test func `USERS lists those of the uid that are logged in, known or not yet looked up`() async throws {
        try await daemon.logIn(.alice)
        try await daemon.logIn(.carol, heldBy: 1)
        try await daemon.logIn(.otherAlice)
        #expect(try await daemon.users() == ["alice", "carol"])
        _ = try await daemon.logOut(.alice)
        #expect(try await daemon.users() == ["carol"])
        #expect(try await daemon.users(7) == [])
        #expect(try await daemon.restarted().users(1001) == ["alice"])
    }

    @Test func `STAT of a user tells what is held; null when not logged in`() async throws {
        #expect(try await daemon.sessions.status(.alice) == nil)
        try await daemon.logIn(.alice)
        try await daemon.put(.alice, "bob", "mine")
        let status = try #require(try await daemon.sessions.status(.alice))
        #expect(status.usage == Usage(images: 1, bytes: 128))
        #expect(status.sessions == 1)
        #expect(status.loggedInAt == daemon.world.time.now)
        // Not yet counted after a start.
        let later = try await daemon.restarted().sessions.status(.alice)
        #expect(later != nil && later?.usage == nil)
    }
}
