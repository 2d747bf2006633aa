import CacheFakes
import NIOCore
import Testing

@testable import CacheCore

@Suite(.timeLimit(.minutes(5))) struct ShutdownTests {
    private let daemon = Daemon()

    @Test func `a stop closes every cache, answers waiters, and keeps logins on disk`() async throws {
        try await daemon.logIn(.alice)
        try await daemon.put(.alice, "bob", "mine")
        let answers = Answers()
        _ = try await daemon.sessions.cache(.alice).get(
            ImageQuery(imageKey: ImageKey(profile: OpaqueID("eve"))), resolve: answers.record)
        await daemon.invalidationService.shutDown()
        #expect(answers.outcomes == ["shuttingDown"])
        #expect(daemon.fetcher.downloads.map(\.isCancelled) == [true])
        #expect(daemon.world.log.events.suffix(2) == ["close", "wipe"])
        #expect(await daemon.restarted().get(.alice, "bob") == "mine from disk")
    }

    @Test func `PUTs during a stop and later requests get SHUTTINGDOWN, not NOLOGIN`() async throws {
        let daemon = Daemon(FakeWorld(imagePool: ThreadPool(), loginPool: ThreadPool(threads: 3)))
        try await daemon.logIn(.alice)
        let cache = try await daemon.sessions.cache(.alice)
        let gate = daemon.store.hold(.seal)
        defer { gate.open() }
        async let failure = daemon.world.services.imagePool.run(for: 0) { () -> CacheFailure? in
            do throws(CacheFailure) {
                try cache.put(ImageKey(profile: OpaqueID("bob")), SampleImage.png("new"), timeToLive: nil)
                return nil
            } catch {
                return error
            }
        }
        await gate.reached()
        async let stopped: Void = daemon.invalidationService.shutDown()
        while cache.isOpen { try await yieldTask() }
        gate.open()
        #expect(try await failure == .shuttingDown)
        await stopped
        #expect(await cache.outcome(ImageQuery(imageKey: ImageKey(profile: OpaqueID("bob")))) == "shuttingDown")
        #expect(daemon.store.held(by: .alice) == [])
    }

    @Test func `I4: a stopped daemon returns neither receipts nor caches`() async throws {
        try await daemon.logIn(.alice)
        await daemon.invalidationService.shutDown()
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

    @Test func `a stop waits for a running logout, whose receipt is correct`() async throws {
        let daemon = Daemon(FakeWorld(imagePool: ThreadPool(), loginPool: ThreadPool(threads: 3)))
        try await daemon.logIn(.alice)
        let gate = daemon.store.hold(.commitLogout)
        async let ended = daemon.logOut(.alice)
        await gate.reached()
        async let stopped: Void = daemon.invalidationService.shutDown()
        defer { gate.open() }
        while daemon.sessions.waiting(for: .alice) == 0 {
            try await yieldTask()
        }
        gate.open()
        #expect(try await ended.users == 1)
        await stopped
        #expect(daemon.store.login(of: .alice) == nil)
    }

    @Test func `a pending logout is not retried after the stop`() async throws {
        try await daemon.logIn(.alice)
        daemon.store.fail(.commitPurge, times: .max)
        await #expect(throws: CacheFailure.self) { try await daemon.purge(.alice) }
        await daemon.invalidationService.shutDown()
        #expect(daemon.world.time.timers == 0)
    }
}
