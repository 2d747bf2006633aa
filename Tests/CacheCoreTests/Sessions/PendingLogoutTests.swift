import CacheFakes
import Logging
import Testing

@testable import CacheCore

/// Logouts that were requested while the daemon did not respond (F46).
@Suite(.timeLimit(.minutes(5))) struct PendingLogoutTests {
    private let pendingFiles = FakePendingLogoutFiles()

    private func pending(_ daemon: Daemon) -> PendingLogouts {
        PendingLogouts(
            pendingFiles: pendingFiles, invalidationService: daemon.invalidationService,
            services: daemon.world.services, log: daemon.sessions.log
        )
    }

    @Test
    func
        `F46, I4: a logout that was requested while the daemon was down is processed at the next start, for that whole uid`()
        async throws
    {
        let before = Daemon()
        for owner in [Owner.alice, .carol, .otherAlice] {
            try await before.logIn(owner)
            try await before.put(owner, "bob", "mine")
        }
        pendingFiles.add(1000)
        let daemon = before.restarted()
        try await pending(daemon).processAll()
        #expect(try await daemon.users(1000) == [])
        #expect(await daemon.get(.alice, "bob") == "notLoggedIn")
        #expect(daemon.store.login(of: .alice) == nil)
        // Other uids are not affected.
        #expect(await daemon.get(.otherAlice, "bob") == "mine from disk")
        #expect(pendingFiles.processed == ["file"])
    }

    @Test func `a pending-logout file is processed once: a later login remains, also after restarts`() async throws {
        let daemon = Daemon()
        try await daemon.logIn(.alice)
        pendingFiles.add(1000)
        let pending = self.pending(daemon)
        try await pending.process(uid: 1000)
        try await daemon.logIn(.alice)
        try await pending.processAll()
        #expect(try await daemon.users() == ["alice"])
        let next = daemon.restarted()
        try await self.pending(next).processAll()
        #expect(try await next.users() == ["alice"])
    }

    @Test func `I4: a uid whose pending logout fails cannot log in, other uids can`() async throws {
        let daemon = Daemon()
        for owner in [Owner.alice, .otherAlice] { try await daemon.logIn(owner) }
        pendingFiles.add(1000, "one")
        daemon.store.fail(.commitLogout, times: .max)
        let pending = self.pending(daemon)
        try await pending.process(uid: 1001)
        #expect(pendingFiles.processed == [])
        await #expect(throws: CacheFailure.inputOutput("EIO")) { try await pending.process(uid: 1000) }
    }

    @Test func `I8, F46: a slow pending logout does not delay logins of other uids`() async throws {
        let daemon = Daemon(FakeWorld(loginPool: ThreadPool(threads: 3)))
        for owner in [Owner.alice, .otherAlice] { try await daemon.logIn(owner) }
        pendingFiles.add(1000, "one")
        let pending = self.pending(daemon)
        let gate = daemon.store.hold(.commitLogout)
        async let all: Void = pending.processAll()
        await gate.reached()
        defer { gate.open() }
        daemon.store.hold(.commitLogout).open()
        pendingFiles.add(1001, "two")
        try await pending.process(uid: 1001)
        #expect(try await daemon.users(1001) == [])
        #expect(pendingFiles.processed == ["two"])
        // The uid itself waits.
        async let own: Void = pending.process(uid: 1000)
        while pending.waiting(uid: 1000) == 0 { try await yieldTask() }
        gate.open()
        try await all
        try await own
        #expect(pendingFiles.processed == ["one", "two"])
    }

    @Test func `I8: callers during a listing share the next one`() async throws {
        let daemon = Daemon(FakeWorld(loginPool: ThreadPool(threads: 3)))
        let pending = self.pending(daemon)
        let gate = pendingFiles.hold(.pending)
        async let first: Void = pending.processAll()
        await gate.reached()
        defer { gate.open() }
        let others = (0..<50).map { uid in Task { try await pending.process(uid: UInt32(uid)) } }
        while pending.waiting < 50 { try await yieldTask() }
        gate.open()
        try await first
        for other in others { try await other.value }
        #expect(pendingFiles.listings == 2)
    }

    @Test func `I8: logins of one uid share a listing`() async throws {
        let daemon = Daemon(FakeWorld(loginPool: ThreadPool(threads: 3)))
        let pending = self.pending(daemon)
        let gate = pendingFiles.hold(.pending)
        let logins = (0..<50).map { _ in Task { try await pending.process(uid: 1000) } }
        await gate.reached()
        defer { gate.open() }
        while pending.waiting < 49 { try await yieldTask() }
        gate.open()
        for login in logins { try await login.value }
        #expect(pendingFiles.listings == 2)
    }

    @Test func `I4: a file whose logout is not durable remains and is retried; other uids are not affected`()
        async throws
    {
        let daemon = Daemon()
        for owner in [Owner.alice, .otherAlice] { try await daemon.logIn(owner) }
        pendingFiles.add(1000, "one")
        pendingFiles.add(1001, "two")
        daemon.store.fail(.commitLogout)
        let pending = self.pending(daemon)
        await #expect(throws: CacheFailure.inputOutput("EIO")) { try await pending.processAll() }
        // The first logout failed, the other one succeeded.
        let failed = pendingFiles.processed == ["two"] ? Owner.alice : .otherAlice
        #expect(pendingFiles.processed.count == 1)
        #expect(try await daemon.users(failed == .alice ? 1001 : 1000) == [])
        // The user stays logged out whatever the disk holds.
        #expect(await daemon.get(failed, "bob") != "null")
        try await pending.processAll()
        #expect(pendingFiles.processed == ["one", "two"])
        #expect(daemon.store.login(of: failed) == nil)
    }

    @Test(arguments: [FakePendingLogoutFiles.Step.pending, .remove])
    func `I4: if pending-logout files cannot be read or removed, the command fails and the logout is repeated`(
        step: FakePendingLogoutFiles.Step
    ) async throws {
        let daemon = Daemon()
        try await daemon.logIn(.alice)
        pendingFiles.add(1000)
        pendingFiles.fail(step)
        let pending = self.pending(daemon)
        await #expect(throws: CacheFailure.inputOutput("EIO")) { try await pending.process(uid: 1000) }
        #expect(pendingFiles.processed == [])
        try await pending.process(uid: 1000)
        #expect(pendingFiles.processed == ["file"])
        #expect(try await daemon.users() == [])
    }

    @Test
    func
        `a listing that has read a pending-logout file is completed before a later login begins, so that the login remains`()
        async throws
    {
        let daemon = Daemon(FakeWorld(loginPool: ThreadPool(threads: 3)))
        try await daemon.logIn(.alice)
        pendingFiles.add(1000)
        let pending = self.pending(daemon)
        let gate = pendingFiles.hold(.pending)
        async let listing: Void = pending.processAll()
        await gate.reached()
        defer { gate.open() }
        let owner = Owner.alice
        async let logIn: Void = {
            try await pending.process(uid: 1000)
            try await daemon.logIn(owner)
        }()
        // The second listing waits for the first, which has read the file and processed nothing yet.
        while pending.waiting == 0 { try await yieldTask() }
        #expect(pendingFiles.listings == 1)
        gate.open()
        try await listing
        try await logIn
        try await pending.processAll()
        #expect(try await daemon.users() == ["alice"])
    }

    // MARK: While the daemon runs

    private let watch = FakePendingLogoutWatch()

    private func watching(_ daemon: Daemon) -> PendingLogouts {
        let pending = self.pending(daemon)
        pending.watch(by: watch)
        return pending
    }

    private func leave(_ uid: UInt32, _ name: String) {
        pendingFiles.add(uid, name)
        watch.report()
    }

    /// Advances the clock until a timer fires, then waits until the listing has ended and at most `running` logouts
    /// run.
    private func advance(
        _ pending: PendingLogouts, _ daemon: Daemon, _ milliseconds: Int64, stillUnderWay: Int = 0
    ) async throws {
        let listed = watch.renewals
        daemon.world.time.advance(milliseconds: milliseconds)
        while watch.renewals == listed || pending.isListing || pending.underWay > stillUnderWay {
            try await yieldTask()
        }
    }

    @Test func `no timer runs while the directory is watched and no logout is pending`() async throws {
        let daemon = Daemon()
        let pending = watching(daemon)
        // The first listing finds files from before the watch.
        try await advance(pending, daemon, 1_000)
        #expect(daemon.world.time.timers == 0)
        watch.report()
        #expect(daemon.world.time.timers == 1)
        try await advance(pending, daemon, 1_000)
        #expect(daemon.world.time.timers == 0)
        leave(1000, "one")
        try await advance(pending, daemon, 1_000)
        #expect(pendingFiles.processed == ["one"])
        #expect(daemon.world.time.timers == 0)
        await pending.stop()
        #expect(watch.isEnded)
    }

    @Test func `changes within a second cause one listing`() async throws {
        let daemon = Daemon()
        let pending = watching(daemon)
        try await advance(pending, daemon, 1_000)
        let listings = pendingFiles.listings
        for _ in 0..<100 { watch.report() }
        #expect(daemon.world.time.timers == 1)
        try await advance(pending, daemon, 1_000)
        #expect(pendingFiles.listings == listings + 1 && daemon.world.time.timers == 0)
        await pending.stop()
    }

    @Test func `F46: a pending-logout file that is created during a listing causes another one`() async throws {
        let daemon = Daemon(FakeWorld(invalidationPool: ThreadPool(threads: 3)))
        let pending = watching(daemon)
        let gate = pendingFiles.hold(.pending)
        defer { gate.open() }
        daemon.world.time.advance(milliseconds: 1_000)
        await gate.reached()
        leave(1000, "one")
        gate.open()
        while pending.isListing { try await yieldTask() }
        #expect(pendingFiles.processed == [])
        try await advance(pending, daemon, 1_000)
        #expect(pendingFiles.processed == ["one"])
        await pending.stop()
    }

    @Test func `F46: a directory that cannot be watched is listed every second`() async throws {
        let daemon = Daemon()
        watch.isPossible = false
        try await daemon.logIn(.alice)
        let pending = watching(daemon)
        try await advance(pending, daemon, 1_000)
        #expect(try await daemon.users() == ["alice"])
        pendingFiles.add(1000)
        try await advance(pending, daemon, 1_000)
        #expect(pendingFiles.processed == ["file"])
        #expect(try await daemon.users() == [])
        #expect(daemon.world.time.timers == 1)
        watch.isPossible = true
        try await advance(pending, daemon, 1_000)
        #expect(daemon.world.time.timers == 0)
        await pending.stop()
    }

    @Test func `failed listings are retried at increasing intervals until one succeeds`() async throws {
        let daemon = Daemon()
        pendingFiles.fail(.pending, times: 6)
        let pending = watching(daemon)
        for (index, pause) in [1_000, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000].enumerated() {
            daemon.world.time.advance(milliseconds: Int64(pause) - 1)
            #expect(pendingFiles.listings == index)
            try await advance(pending, daemon, 1)
        }
        #expect(pendingFiles.listings == 7 && daemon.world.time.timers == 0)
        await pending.stop()
    }

    @Test func `F46, I8: listings continue during a slow logout and do not start it again`() async throws {
        let daemon = Daemon(FakeWorld(invalidationPool: ThreadPool(threads: 3)))
        try await daemon.logIn(.alice)
        pendingFiles.add(1000, "one")
        let pending = watching(daemon)
        let gate = daemon.store.hold(.commitLogout)
        defer { gate.open() }
        try await advance(pending, daemon, 1_000, stillUnderWay: 1)
        await gate.reached()
        #expect(daemon.world.time.timers == 0)
        let listings = pendingFiles.listings
        leave(1001, "two")
        try await advance(pending, daemon, 1_000, stillUnderWay: 1)
        while pendingFiles.processed != ["two"] { try await yieldTask() }
        // One by the listing, one with the lock of the new uid.
        #expect(pendingFiles.listings == listings + 2 && pending.waiting(uid: 1000) == 0)
        gate.open()
        while pending.underWay > 0 { try await yieldTask() }
        #expect(pendingFiles.processed == ["one", "two"])
        await pending.stop()
    }

    @Test func `F46, I8: retries of a failing uid have increasing intervals and do not delay other uids`() async throws
    {
        let daemon = Daemon()
        daemon.store.fail(.makeDurable, times: .max)
        pendingFiles.add(1000, "one")
        let pending = watching(daemon)
        for (index, pause) in [1_000, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000].enumerated() {
            daemon.world.time.advance(milliseconds: Int64(pause) - 1)
            #expect(daemon.store.calls(.makeDurable) == index)
            try await advance(pending, daemon, 1)
            #expect(daemon.store.calls(.makeDurable) == index + 1)
            #expect(daemon.world.time.timers == 1)
        }
        daemon.store.fail(.makeDurable, times: 0)
        leave(1001, "two")
        try await advance(pending, daemon, 1_000)
        #expect(pendingFiles.processed == ["two"])
        try await advance(pending, daemon, 29_000)
        #expect(pendingFiles.processed == ["one", "two"])
        // After a success, a uid starts with the shortest interval again.
        daemon.store.fail(.makeDurable)
        leave(1000, "three")
        for _ in 1...2 { try await advance(pending, daemon, 1_000) }
        #expect(pendingFiles.processed.count == 3 && daemon.world.time.timers == 0)
        await pending.stop()
    }

    @Test func `stop() waits for a running listing, and none begins afterwards`() async throws {
        let daemon = Daemon(FakeWorld(loginPool: ThreadPool(threads: 2)))
        let pending = self.pending(daemon)
        pending.watch(by: watch)
        let gate = pendingFiles.hold(.pending)
        async let listing: Void = pending.processAll()
        await gate.reached()
        defer { gate.open() }
        async let stop: Void = pending.stop()
        while pending.waiting == 0 { try await yieldTask() }
        gate.open()
        try await listing
        await stop
        #expect(daemon.world.time.timers == 0)
        await #expect(throws: CacheFailure.shuttingDown) { try await pending.process(uid: 1000) }
        #expect(pendingFiles.listings == 1)
    }
}
