import CacheFakes
import NIOCore
import Testing

@testable import CacheCore

@Suite(.timeLimit(.minutes(5))) struct LogoutTests {
    private let daemon = Daemon()

    @Test func `F66: logouts and purges do not wait for logins, even to list the users`() async throws {
        let before = Daemon()
        for session in ["one", "two"] { try await before.logIn(.alice, session: session) }
        try await before.logIn(.carol)
        func next() -> Daemon {
            Daemon(
                FakeWorld(store: before.store.restarted(), loginPool: ClosedPool(), invalidationPool: ImmediatePool()))
        }
        #expect(try await next().purge(.alice).users == 1)
        #expect(try await next().purge(.alice, "bob").users == 1)
        try await next().release(.alice, connection: 1)
        #expect(try await next().logOut(.alice, session: "one").sessions == 1)
        #expect(try await next().invalidationService.purgeAll(uid: 1000, profiles: []).users == 2)
        #expect(try await next().logOut(.alice).users == 1)
        #expect(try await next().invalidationService.logOutAll(uid: 1000).users == 1)
        #expect(try await next().logOut(.alice).users == 0)
    }

    @Test func `I2, I3: after a logout, nothing of the user remains in memory or on disk`() async throws {
        try await daemon.logIn(.alice)
        try await daemon.put(.alice, "bob", "mine")
        let receipt = try await daemon.logOut(.alice)
        #expect(receipt.users == 1)
        #expect(receipt.usage == Usage(images: 1, bytes: 128))
        #expect(receipt.sessions == 0)
        #expect(await daemon.get(.alice, "bob") == "notLoggedIn")
        #expect(daemon.store.login(of: .alice) == nil)
        #expect(daemon.world.services.memory.statistics.images == 0)
        #expect(daemon.sessions.knownOwners == 0)

        try await daemon.logIn(.alice)
        #expect(await daemon.get(.alice, "bob", cached: true) == "null")
        #expect(daemon.store.violations == [])
    }

    @Test func `I3: a logout ends downloads, wipes keys, commits, and then deletes files`() async throws {
        try await daemon.logIn(.alice)
        _ = try await daemon.sessions.cache(.alice).get(ImageQuery(imageKey: ImageKey(profile: OpaqueID("bob")))) { _ in
        }
        _ = daemon.world.log.removeAll()
        let receipt = try await daemon.logOut(.alice)
        #expect(receipt.cancelled == 1)
        #expect(
            daemon.world.log.events
                == ["cancel https://origin.test/alice/bob/128", "close", "wipe", "commitLogout", "discard"])
        #expect(daemon.store.violations == [])
    }

    @Test func `F40: a waiter gets CANCELLED before the receipt; the download that ends later stores nothing`()
        async throws
    {
        try await daemon.logIn(.alice)
        let answers = Answers()
        _ = try await daemon.sessions.cache(.alice).get(
            ImageQuery(imageKey: ImageKey(profile: OpaqueID("bob"))), resolve: answers.record)
        _ = try await daemon.logOut(.alice)
        #expect(answers.outcomes == ["cancelled"])
        try await daemon.logIn(.alice)
        daemon.fetcher.downloads[0].end(SampleImage.downloaded("late"))
        #expect(daemon.store.held(by: .alice) == [])
        #expect(await daemon.get(.alice, "bob", cached: true) == "null")
    }

    @Test func `F45: a logout of one session of two purges nothing`() async throws {
        try await daemon.logIn(.alice, session: "one")
        try await daemon.logIn(.alice, session: "two")
        try await daemon.put(.alice, "bob", "mine")
        let first = try await daemon.logOut(.alice, session: "one")
        #expect(first.users == 0 && first.sessions == 1)
        #expect(await daemon.get(.alice, "bob") == "mine from memory")
        #expect(daemon.store.login(of: .alice)?.sessions == [OpaqueID("two")])
        let second = try await daemon.logOut(.alice, session: "two")
        #expect(second.users == 1 && second.sessions == 0)
        #expect(await daemon.get(.alice, "bob") == "notLoggedIn")
    }

    @Test func `LOGOUT of an unknown session ends nothing; without SESSION it ends all`() async throws {
        try await daemon.logIn(.alice, session: "one")
        try await daemon.logIn(.alice, session: "two", heldBy: 1)
        #expect(try await daemon.logOut(.alice, session: "three").sessions == 2)
        #expect(try await daemon.logOut(.alice).users == 1)
        #expect(await daemon.get(.alice, "bob") == "notLoggedIn")
    }

    @Test func `a session whose end cannot be made durable remains`() async throws {
        try await daemon.logIn(.alice, session: "one")
        try await daemon.logIn(.alice, session: "two")
        daemon.store.fail(.commitSessions)
        await #expect(throws: CacheFailure.inputOutput("EIO")) { try await daemon.logOut(.alice, session: "one") }
        #expect(try await daemon.sessions.status(.alice)?.sessions == 2)
    }

    @Test func `LOGOUT and PURGE without a login succeed with zeros and advance the epoch`() async throws {
        var epoch = daemon.sessions.epochs.current(of: 1000)
        for receipt in [
            try await daemon.logOut(.alice), try await daemon.purge(.alice), try await daemon.purge(.alice, "bob"),
            try await daemon.logOut(.alice, session: "one"),
        ] {
            #expect(receipt == Receipt(users: 0, usage: Usage(), cancelled: 0, sessions: 0, epoch: epoch + 1))
            epoch = receipt.epoch
        }
        #expect(daemon.sessions.knownOwners == 0)
    }

    @Test func `LOGOUT of all ends every user of the uid, in memory or on disk, and of no other uid`() async throws {
        for owner in [Owner.alice, .carol, .otherAlice] {
            try await daemon.logIn(owner)
            try await daemon.put(owner, "bob", "mine")
        }
        let next = daemon.restarted()
        _ = await next.get(.alice, "bob")
        let receipt = try await next.invalidationService.logOutAll(uid: 1000)
        #expect(receipt.users == 2)
        // Not counted yet after a start.
        #expect(receipt.usage == nil)
        #expect(try await next.users() == [])
        #expect(await next.get(.otherAlice, "bob") == "mine from disk")
        #expect(try await next.invalidationService.logOutAll(uid: 1000).users == 0)
        #expect(next.store.violations == [])
    }

    @Test func `I2: LOGOUT of all includes users in memory whose login the disk does not show`() async throws {
        try await daemon.logIn(.alice)
        let next = daemon.restarted()
        #expect(await next.get(.alice, "bob", cached: true) == "null")
        next.store.forgetLogin(of: .alice)
        _ = try await next.invalidationService.logOutAll(uid: 1000)
        #expect(await next.get(.alice, "bob", cached: true) == "notLoggedIn")
    }

    @Test func `LOGOUT of all with a session ends that session of each user`() async throws {
        try await daemon.logIn(.alice, session: "one")
        try await daemon.logIn(.alice, session: "two")
        try await daemon.logIn(.carol, session: "one")
        let receipt = try await daemon.invalidationService.logOutAll(uid: 1000, session: OpaqueID("one"))
        #expect(receipt.users == 1 && receipt.sessions == 1)
        #expect(try await daemon.users() == ["alice"])
    }

    @Test func `a failure of one user does not stop the logout of the others`() async throws {
        try await daemon.logIn(.alice)
        try await daemon.logIn(.carol)
        daemon.store.fail(.commitLogout)
        await #expect(throws: CacheFailure.inputOutput("EIO")) {
            try await daemon.invalidationService.logOutAll(uid: 1000)
        }
        #expect(daemon.store.calls(.commitLogout) == 2)
        #expect(try await daemon.users().count == 1)
    }

    @Test func `F41: LOGOUT of all includes a user who is being purged`() async throws {
        let daemon = Daemon(FakeWorld(imagePool: ThreadPool(), loginPool: ThreadPool(threads: 3)))
        try await daemon.logIn(.alice)
        let gate = daemon.store.hold(.commitPurge)
        async let purged = daemon.purge(.alice)
        await gate.reached()
        async let ended = daemon.invalidationService.logOutAll(uid: 1000)
        defer { gate.open() }
        while daemon.sessions.waiting(for: .alice) == 0 {
            try await yieldTask()
        }
        gate.open()
        #expect(try await purged.users == 1)
        #expect(try await ended.users == 1)
        #expect(daemon.store.login(of: .alice) == nil)
        #expect(daemon.store.violations == [])
    }

    @Test func `I4: an unreadable login can be ended`() async throws {
        try await daemon.logIn(.alice)
        let next = daemon.restarted()
        next.store.fail(.load, times: .max)
        await #expect(throws: CacheFailure.inputOutput("EIO")) { try await next.logOut(.alice, session: "default") }
        await #expect(throws: CacheFailure.inputOutput("EIO")) { try await next.purge(.alice) }
        let receipt = try await next.logOut(.alice)
        #expect(receipt.users == 1 && receipt.usage == nil)
        #expect(next.store.login(of: .alice) == nil)
    }

    @Test func `F41: a login during a logout, and a purge during a purge, wait and get correct receipts`()
        async throws
    {
        let daemon = Daemon(FakeWorld(imagePool: ThreadPool(), loginPool: ThreadPool(threads: 3)))
        try await daemon.logIn(.alice)
        try await daemon.put(.alice, "bob", "mine")
        let gate = daemon.store.hold(.commitLogout)
        async let ended = daemon.logOut(.alice)
        await gate.reached()
        // Reads are rejected as soon as the logout begins.
        #expect(daemon.sessions.openCache(.alice) == nil)
        async let opened: Void = daemon.logIn(.alice)
        defer { gate.open() }
        while daemon.sessions.waiting(for: .alice) < 1 {
            try await yieldTask()
        }
        async let purged = daemon.purge(.alice)
        while daemon.sessions.waiting(for: .alice) < 2 {
            try await yieldTask()
        }
        async let read = daemon.get(.alice, "bob", cached: true)
        while daemon.sessions.waiting(for: .alice) < 3 {
            try await yieldTask()
        }
        gate.open()
        let first = try await ended
        try await opened
        let second = try await purged
        #expect(first.users == 1 && first.usage == Usage(images: 1, bytes: 128))
        #expect(second.users == 1 && second.usage == Usage() && second.sessions == 1)
        #expect(first.epoch < second.epoch)
        #expect(await read == "null")
        #expect(daemon.store.violations == [])
    }
}

/// A pool that fails the test if work is submitted.
private struct ClosedPool: BlockingPool {
    func submit(for uid: UInt32, _ work: @escaping @Sendable () -> Void) {
        Issue.record("this work would wait for logins")
        work()
    }
}
