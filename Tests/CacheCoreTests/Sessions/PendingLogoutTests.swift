import CacheFakes
import Logging
import Testing

@testable import CacheCore

/// Log-outs that came while the daemon was down, stuck or refusing (F46).
@Suite(.timeLimit(.minutes(5))) struct PendingLogoutTests {
    private let markers = FakeMarkers()

    private func pending(_ daemon: Daemon) -> PendingLogouts {
        PendingLogouts(
            markers: markers, logout: daemon.logout, services: daemon.world.services, log: daemon.sessions.log)
    }

    @Test
    func `F46, I4: a log-out that came while the daemon was down is processed at the next start, for all of that uid`()
        async throws
    {
        let before = Daemon()
        for owner in [Owner.alice, .carol, .otherAlice] {
            try await before.logIn(owner)
            try await before.put(owner, "bob", "mine")
        }
        markers.leave(1000)
        let daemon = before.restarted()
        try await pending(daemon).processAll()
        #expect(try await daemon.users(1000) == [])
        #expect(await daemon.get(.alice, "bob") == "notLoggedIn")
        #expect(daemon.store.login(of: .alice) == nil)
        // Nobody else is touched.
        #expect(await daemon.get(.otherAlice, "bob") == "mine from disk")
        #expect(markers.processed == ["marker"])
    }

    @Test func `a marker is processed once: who has logged in again since stays, also over restarts`() async throws {
        let daemon = Daemon()
        try await daemon.logIn(.alice)
        markers.leave(1000)
        let pending = self.pending(daemon)
        try await pending.process(uid: 1000)
        try await daemon.logIn(.alice)
        try await pending.processAll()
        #expect(try await daemon.users() == ["alice"])
        let next = daemon.restarted()
        try await self.pending(next).processAll()
        #expect(try await next.users() == ["alice"])
    }

    @Test func `I4: a uid whose log-out fails may not log in, and keeps no other from it`() async throws {
        let daemon = Daemon()
        for owner in [Owner.alice, .otherAlice] { try await daemon.logIn(owner) }
        markers.leave(1000, "one")
        daemon.store.fail(.commitLogout, times: .max)
        let pending = self.pending(daemon)
        try await pending.process(uid: 1001)
        #expect(markers.processed == [])
        await #expect(throws: CacheFailure.inputOutput("EIO")) { try await pending.process(uid: 1000) }
    }

    @Test func `I8, F46: a uid whose pending log-out takes long keeps no other uid from logging in`() async throws {
        let daemon = Daemon(FakeWorld(lifecycle: ThreadPool(threads: 3)))
        for owner in [Owner.alice, .otherAlice] { try await daemon.logIn(owner) }
        markers.leave(1000, "one")
        let pending = self.pending(daemon)
        let gate = daemon.store.hold(.commitLogout)
        async let all: Void = pending.processAll()
        await gate.reached()
        defer { gate.open() }
        // Only the first stands before it.
        daemon.store.hold(.commitLogout).open()
        markers.leave(1001, "two")
        try await pending.process(uid: 1001)
        #expect(try await daemon.users(1001) == [])
        #expect(markers.processed == ["two"])
        // The uid itself waits.
        async let own: Void = pending.process(uid: 1000)
        while pending.waiting(uid: 1000) == 0 { try await turn() }
        gate.open()
        try await all
        try await own
        #expect(markers.processed == ["one", "two"])
    }

    @Test func `I8: who come while a look is under way share the next one`() async throws {
        let daemon = Daemon(FakeWorld(lifecycle: ThreadPool(threads: 3)))
        let pending = self.pending(daemon)
        let gate = markers.hold(.pending)
        async let first: Void = pending.processAll()
        await gate.reached()
        defer { gate.open() }
        let others = (0..<50).map { uid in Task { try await pending.process(uid: UInt32(uid)) } }
        while pending.waiting < 50 { try await turn() }
        gate.open()
        try await first
        for other in others { try await other.value }
        #expect(markers.looks == 2)
    }

    @Test func `I8: log-ins of one uid share a look, too`() async throws {
        let daemon = Daemon(FakeWorld(lifecycle: ThreadPool(threads: 3)))
        let pending = self.pending(daemon)
        let gate = markers.hold(.pending)
        let logins = (0..<50).map { _ in Task { try await pending.process(uid: 1000) } }
        await gate.reached()
        defer { gate.open() }
        while pending.waiting < 49 { try await turn() }
        gate.open()
        for login in logins { try await login.value }
        #expect(markers.looks == 2)
    }

    @Test func `I4: what cannot be made durable is not on record, and is tried again; one uid's trouble is no other's`()
        async throws
    {
        let daemon = Daemon()
        for owner in [Owner.alice, .otherAlice] { try await daemon.logIn(owner) }
        markers.leave(1000, "one")
        markers.leave(1001, "two")
        daemon.store.fail(.commitLogout)
        let pending = self.pending(daemon)
        await #expect(throws: CacheFailure.inputOutput("EIO")) { try await pending.processAll() }
        // The first that came to the disk failed, and the other did not.
        let failed = markers.processed == ["two"] ? Owner.alice : .otherAlice
        #expect(markers.processed.count == 1)
        #expect(try await daemon.users(failed == .alice ? 1001 : 1000) == [])
        // Closed, whatever the disk still has of it.
        #expect(await daemon.get(failed, "bob") != "null")
        try await pending.processAll()
        #expect(markers.processed == ["one", "two"])
        #expect(daemon.store.login(of: failed) == nil)
    }

    @Test(arguments: [FakeMarkers.Step.pending, .remove])
    func `I4: when markers cannot be read or removed, that is an error, and the log-out is done again`(
        step: FakeMarkers.Step
    ) async throws {
        let daemon = Daemon()
        try await daemon.logIn(.alice)
        markers.leave(1000)
        markers.fail(step)
        let pending = self.pending(daemon)
        await #expect(throws: CacheFailure.inputOutput("EIO")) { try await pending.process(uid: 1000) }
        #expect(markers.processed == [])
        try await pending.process(uid: 1000)
        #expect(markers.processed == ["marker"])
        #expect(try await daemon.users() == [])
    }

    @Test func `a look that found a marker is over before a log-in behind it begins, so that it cannot end that one`()
        async throws
    {
        let daemon = Daemon(FakeWorld(lifecycle: ThreadPool(threads: 3)))
        try await daemon.logIn(.alice)
        markers.leave(1000)
        let pending = self.pending(daemon)
        let gate = markers.hold(.pending)
        async let look: Void = pending.processAll()
        await gate.reached()
        defer { gate.open() }
        let owner = Owner.alice
        async let logIn: Void = {
            try await pending.process(uid: 1000)
            try await daemon.logIn(owner)
        }()
        // The second look stands behind the first, which has read the marker and done nothing yet.
        while pending.waiting == 0 { try await turn() }
        #expect(markers.looks == 1)
        gate.open()
        try await look
        try await logIn
        try await pending.processAll()
        #expect(try await daemon.users() == ["alice"])
    }

    // MARK: While the daemon runs

    private let watch = FakeMarkerWatch()

    private func watching(_ daemon: Daemon) -> PendingLogouts {
        let pending = self.pending(daemon)
        pending.watch(by: watch)
        return pending
    }

    private func leave(_ uid: UInt32, _ name: String) {
        markers.leave(uid, name)
        watch.report()
    }

    /// Lets time pass until a timer fires, and waits until the listing and what it began have ended but for so many.
    private func advance(
        _ pending: PendingLogouts, _ daemon: Daemon, _ milliseconds: Int64, stillUnderWay: Int = 0
    ) async throws {
        let listed = watch.renewals
        daemon.world.time.advance(milliseconds: milliseconds)
        while watch.renewals == listed || pending.isListing || pending.underWay > stillUnderWay { try await turn() }
    }

    @Test func `no timer is armed while the directory is watched and no log-out is pending`() async throws {
        let daemon = Daemon()
        let pending = watching(daemon)
        // The first listing finds what was left before the watch began.
        try await advance(pending, daemon, 1_000)
        #expect(daemon.world.time.timers == 0)
        watch.report()
        #expect(daemon.world.time.timers == 1)
        try await advance(pending, daemon, 1_000)
        #expect(daemon.world.time.timers == 0)
        leave(1000, "one")
        try await advance(pending, daemon, 1_000)
        #expect(markers.processed == ["one"])
        #expect(daemon.world.time.timers == 0)
        await pending.stop()
        #expect(watch.isEnded)
    }

    @Test func `changes within a second cause one listing`() async throws {
        let daemon = Daemon()
        let pending = watching(daemon)
        try await advance(pending, daemon, 1_000)
        let looks = markers.looks
        for _ in 0..<100 { watch.report() }
        #expect(daemon.world.time.timers == 1)
        try await advance(pending, daemon, 1_000)
        #expect(markers.looks == looks + 1 && daemon.world.time.timers == 0)
        await pending.stop()
    }

    @Test func `F46: a marker that is left during a listing causes another one`() async throws {
        let daemon = Daemon(FakeWorld(invalidations: ThreadPool(threads: 3)))
        let pending = watching(daemon)
        let gate = markers.hold(.pending)
        defer { gate.open() }
        daemon.world.time.advance(milliseconds: 1_000)
        await gate.reached()
        leave(1000, "one")
        gate.open()
        while pending.isListing { try await turn() }
        #expect(markers.processed == [])
        try await advance(pending, daemon, 1_000)
        #expect(markers.processed == ["one"])
        await pending.stop()
    }

    @Test func `F46: a directory that cannot be watched is listed every second`() async throws {
        let daemon = Daemon()
        watch.isPossible = false
        try await daemon.logIn(.alice)
        let pending = watching(daemon)
        try await advance(pending, daemon, 1_000)
        #expect(try await daemon.users() == ["alice"])
        markers.leave(1000)
        try await advance(pending, daemon, 1_000)
        #expect(markers.processed == ["marker"])
        #expect(try await daemon.users() == [])
        #expect(daemon.world.time.timers == 1)
        watch.isPossible = true
        try await advance(pending, daemon, 1_000)
        #expect(daemon.world.time.timers == 0)
        await pending.stop()
    }

    @Test func `listings that fail are repeated at growing pauses until one succeeds`() async throws {
        let daemon = Daemon()
        markers.fail(.pending, times: 6)
        let pending = watching(daemon)
        for (index, pause) in [1_000, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000].enumerated() {
            daemon.world.time.advance(milliseconds: Int64(pause) - 1)
            #expect(markers.looks == index)
            try await advance(pending, daemon, 1)
        }
        #expect(markers.looks == 7 && daemon.world.time.timers == 0)
        await pending.stop()
    }

    @Test func `F46, I8: listings go on while a uid's log-out takes long, and begin it no second time`() async throws {
        let daemon = Daemon(FakeWorld(invalidations: ThreadPool(threads: 3)))
        try await daemon.logIn(.alice)
        markers.leave(1000, "one")
        let pending = watching(daemon)
        let gate = daemon.store.hold(.commitLogout)
        defer { gate.open() }
        try await advance(pending, daemon, 1_000, stillUnderWay: 1)
        await gate.reached()
        #expect(daemon.world.time.timers == 0)
        let looks = markers.looks
        leave(1001, "two")
        try await advance(pending, daemon, 1_000, stillUnderWay: 1)
        while markers.processed != ["two"] { try await turn() }
        // One by the listing, one in the turn of the uid that came new.
        #expect(markers.looks == looks + 2 && pending.waiting(uid: 1000) == 0)
        gate.open()
        while pending.underWay > 0 { try await turn() }
        #expect(markers.processed == ["one", "two"])
        await pending.stop()
    }

    @Test func `F46, I8: a uid that fails has pauses of its own, which grow, and keeps no other waiting`() async throws
    {
        let daemon = Daemon()
        daemon.store.fail(.makeDurable, times: .max)
        markers.leave(1000, "one")
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
        #expect(markers.processed == ["two"])
        try await advance(pending, daemon, 29_000)
        #expect(markers.processed == ["one", "two"])
        // A uid whose log-out is done begins with the shortest pause again.
        daemon.store.fail(.makeDurable)
        leave(1000, "three")
        for _ in 1...2 { try await advance(pending, daemon, 1_000) }
        #expect(markers.processed.count == 3 && daemon.world.time.timers == 0)
        await pending.stop()
    }

    @Test func `nobody looks behind the one who has stopped it, and who stops it waits for the look under way`()
        async throws
    {
        let daemon = Daemon(FakeWorld(lifecycle: ThreadPool(threads: 2)))
        let pending = self.pending(daemon)
        pending.watch(by: watch)
        let gate = markers.hold(.pending)
        async let look: Void = pending.processAll()
        await gate.reached()
        defer { gate.open() }
        async let stop: Void = pending.stop()
        while pending.waiting == 0 { try await turn() }
        gate.open()
        try await look
        await stop
        #expect(daemon.world.time.timers == 0)
        await #expect(throws: CacheFailure.shuttingDown) { try await pending.process(uid: 1000) }
        #expect(markers.looks == 1)
    }
}
