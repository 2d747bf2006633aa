import CacheFakes
import NIOCore
import Testing

@testable import CacheCore

@Suite(.timeLimit(.minutes(5))) struct ShutDownTests {
    private let daemon = Daemon()

    @Test func `a stopping daemon closes every cache, answers who waits, and leaves who is logged in on disk`()
        async throws
    {
        try await daemon.logIn(.alice)
        try await daemon.put(.alice, "bob", "mine")
        let answers = Answers()
        _ = try await daemon.sessions.cache(.alice).get(
            ImageQuery(imageKey: ImageKey(profile: OpaqueID("eve"))), resolve: answers.take)
        await daemon.logout.shutDown()
        #expect(answers.told == ["shuttingDown"])
        #expect(daemon.fetcher.downloads.map(\.isCancelled) == [true])
        #expect(daemon.world.log.events.suffix(2) == ["close", "wipe"])
        #expect(await daemon.restarted().get(.alice, "bob") == "mine from disk")
    }

    @Test func `a PUT that the stop overtakes is told so, not that the user was logged out; so is who asks behind it`()
        async throws
    {
        let daemon = Daemon(FakeWorld(disk: ThreadPool(), lifecycle: ThreadPool(threads: 3)))
        try await daemon.logIn(.alice)
        let cache = try await daemon.sessions.cache(.alice)
        let gate = daemon.store.hold(.seal)
        defer { gate.open() }
        async let failure = daemon.world.services.disk.run(for: 0) { () -> CacheFailure? in
            do throws(CacheFailure) {
                try cache.put(ImageKey(profile: OpaqueID("bob")), SampleImage.png("new"), timeToLive: nil)
                return nil
            } catch {
                return error
            }
        }
        await gate.reached()
        async let stopped: Void = daemon.logout.shutDown()
        while cache.isOpen { try await turn() }
        gate.open()
        #expect(try await failure == .shuttingDown)
        await stopped
        #expect(await cache.outcome(ImageQuery(imageKey: ImageKey(profile: OpaqueID("bob")))) == "shuttingDown")
        #expect(daemon.store.held(by: .alice) == [])
    }

    @Test func `I4: nobody gets a receipt or a cache from a daemon that has stopped`() async throws {
        try await daemon.logIn(.alice)
        await daemon.logout.shutDown()
        for owner in [Owner.alice, .carol] {
            await #expect(throws: CacheFailure.shuttingDown) { try await daemon.logOut(owner) }
            await #expect(throws: CacheFailure.shuttingDown) { try await daemon.purge(owner) }
            await #expect(throws: CacheFailure.shuttingDown) { try await daemon.purge(owner, "bob") }
            await #expect(throws: CacheFailure.shuttingDown) { try await daemon.logIn(owner) }
            await #expect(throws: CacheFailure.shuttingDown) { try await daemon.release(owner, connection: 1) }
            #expect(await daemon.get(owner, "bob") == "shuttingDown")
        }
        #expect(daemon.store.login(of: .alice) != nil)
        #expect(daemon.store.login(of: .carol) == nil)
    }

    @Test func `an invalidation under way is finished first, and its receipt is true`() async throws {
        let daemon = Daemon(FakeWorld(disk: ThreadPool(), lifecycle: ThreadPool(threads: 3)))
        try await daemon.logIn(.alice)
        let gate = daemon.store.hold(.commitLogout)
        async let ended = daemon.logOut(.alice)
        await gate.reached()
        async let stopped: Void = daemon.logout.shutDown()
        // Whatever fails, nobody is left standing at the gate.
        defer { gate.open() }
        while daemon.sessions.waiting(for: .alice) == 0 {
            try await turn()
        }
        gate.open()
        #expect(try await ended.users == 1)
        await stopped
        #expect(daemon.store.login(of: .alice) == nil)
    }

    @Test func `an end that is owed is not tried again on a store that may be closed`() async throws {
        try await daemon.logIn(.alice)
        daemon.store.fail(.commitPurge, times: .max)
        await #expect(throws: CacheFailure.self) { try await daemon.purge(.alice) }
        await daemon.logout.shutDown()
        #expect(daemon.world.time.timers == 0)
    }
}
