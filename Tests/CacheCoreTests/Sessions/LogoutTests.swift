import CacheFakes
import NIOCore
import Testing

@testable import CacheCore

@Suite(.timeLimit(.minutes(5))) struct LogoutTests {
    private let daemon = Daemon()

    @Test func `F66: log-outs and purges wait behind no log-in, also where the disk is asked who there is`()
        async throws
    {
        let before = Daemon()
        for session in ["one", "two"] { try await before.logIn(.alice, session: session) }
        try await before.logIn(.carol)
        func next() -> Daemon {
            Daemon(FakeWorld(store: before.store.restarted(), lifecycle: ClosedPool(), invalidations: ImmediatePool()))
        }
        #expect(try await next().purge(.alice).users == 1)
        #expect(try await next().purge(.alice, "bob").users == 1)
        try await next().release(.alice, connection: 1)
        #expect(try await next().logOut(.alice, session: "one").sessions == 1)
        #expect(try await next().logout.purgeAll(uid: 1000, profiles: []).users == 2)
        #expect(try await next().logOut(.alice).users == 1)
        #expect(try await next().logout.logOutAll(uid: 1000).users == 1)
        #expect(try await next().logOut(.alice).users == 0)
    }

    @Test func `I2, I3: after a log-out nothing of the user is there, in memory or on disk`() async throws {
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

    @Test func `I3: the order of a log-out: downloads, keys, the commit, and what is left behind last`() async throws {
        try await daemon.logIn(.alice)
        _ = try await daemon.sessions.cache(.alice).get(ImageQuery(imageKey: ImageKey(profile: OpaqueID("bob")))) { _ in
        }
        _ = daemon.world.log.take()
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
            ImageQuery(imageKey: ImageKey(profile: OpaqueID("bob"))), resolve: answers.take)
        _ = try await daemon.logOut(.alice)
        #expect(answers.told == ["cancelled"])
        try await daemon.logIn(.alice)
        daemon.fetcher.downloads[0].end(SampleImage.downloaded("late"))
        #expect(daemon.store.held(by: .alice) == [])
        #expect(await daemon.get(.alice, "bob", cached: true) == "null")
    }

    @Test func `F45: one session of two logs out: nothing is purged until the last`() async throws {
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

    @Test func `a session that does not exist ends nothing; without SESSION all of them end`() async throws {
        try await daemon.logIn(.alice, session: "one")
        try await daemon.logIn(.alice, session: "two", heldBy: 1)
        #expect(try await daemon.logOut(.alice, session: "three").sessions == 2)
        #expect(try await daemon.logOut(.alice).users == 1)
        #expect(await daemon.get(.alice, "bob") == "notLoggedIn")
    }

    @Test func `a session that could not be taken away is still there`() async throws {
        try await daemon.logIn(.alice, session: "one")
        try await daemon.logIn(.alice, session: "two")
        daemon.store.fail(.commitSessions)
        await #expect(throws: CacheFailure.inputOutput("EIO")) { try await daemon.logOut(.alice, session: "one") }
        #expect(try await daemon.sessions.status(.alice)?.sessions == 2)
    }

    @Test func `LOGOUT and PURGE of who is not logged in succeed with zeros, and still count as events`() async throws {
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

    @Test func `LOGOUT of all ends every user of the uid, looked up or not, and nobody else`() async throws {
        for owner in [Owner.alice, .carol, .otherAlice] {
            try await daemon.logIn(owner)
            try await daemon.put(owner, "bob", "mine")
        }
        let next = daemon.restarted()
        _ = await next.get(.alice, "bob")
        let receipt = try await next.logout.logOutAll(uid: 1000)
        #expect(receipt.users == 2)
        // Not yet counted after a start.
        #expect(receipt.usage == nil)
        #expect(try await next.users() == [])
        #expect(await next.get(.otherAlice, "bob") == "mine from disk")
        #expect(try await next.logout.logOutAll(uid: 1000).users == 0)
        #expect(next.store.violations == [])
    }

    @Test func `I2: LOGOUT of all does not pass over who is open in memory when the disk does not show the log-in`()
        async throws
    {
        try await daemon.logIn(.alice)
        let next = daemon.restarted()
        #expect(await next.get(.alice, "bob", cached: true) == "null")
        next.store.forgetLogin(of: .alice)
        _ = try await next.logout.logOutAll(uid: 1000)
        #expect(await next.get(.alice, "bob", cached: true) == "notLoggedIn")
    }

    @Test func `LOGOUT of all with a session ends that session of each user`() async throws {
        try await daemon.logIn(.alice, session: "one")
        try await daemon.logIn(.alice, session: "two")
        try await daemon.logIn(.carol, session: "one")
        let receipt = try await daemon.logout.logOutAll(uid: 1000, session: OpaqueID("one"))
        #expect(receipt.users == 1 && receipt.sessions == 1)
        #expect(try await daemon.users() == ["alice"])
    }

    @Test func `one user's trouble keeps no other user's cache alive`() async throws {
        try await daemon.logIn(.alice)
        try await daemon.logIn(.carol)
        daemon.store.fail(.commitLogout)
        await #expect(throws: CacheFailure.inputOutput("EIO")) { try await daemon.logout.logOutAll(uid: 1000) }
        #expect(daemon.store.calls(.commitLogout) == 2)
        #expect(try await daemon.users().count == 1)
    }

    @Test func `F41: LOGOUT of all passes over no user who is just being purged`() async throws {
        let daemon = Daemon(FakeWorld(disk: ThreadPool(), lifecycle: ThreadPool(threads: 3)))
        try await daemon.logIn(.alice)
        let gate = daemon.store.hold(.commitPurge)
        async let purged = daemon.purge(.alice)
        await gate.reached()
        async let ended = daemon.logout.logOutAll(uid: 1000)
        // Whatever fails, nobody is left standing at the gate.
        defer { gate.open() }
        while daemon.sessions.waiting(for: .alice) == 0 {
            try await turn()
        }
        gate.open()
        #expect(try await purged.users == 1)
        #expect(try await ended.users == 1)
        #expect(daemon.store.login(of: .alice) == nil)
        #expect(daemon.store.violations == [])
    }

    @Test func `I4: a log-in that cannot be read can still be ended`() async throws {
        try await daemon.logIn(.alice)
        let next = daemon.restarted()
        next.store.fail(.load, times: .max)
        await #expect(throws: CacheFailure.inputOutput("EIO")) { try await next.logOut(.alice, session: "default") }
        await #expect(throws: CacheFailure.inputOutput("EIO")) { try await next.purge(.alice) }
        let receipt = try await next.logOut(.alice)
        #expect(receipt.users == 1 && receipt.usage == nil)
        #expect(next.store.login(of: .alice) == nil)
    }

    @Test func `F41: log-in during log-out, purge during purge: each waits its turn and gets a true receipt`()
        async throws
    {
        let daemon = Daemon(FakeWorld(disk: ThreadPool(), lifecycle: ThreadPool(threads: 3)))
        try await daemon.logIn(.alice)
        try await daemon.put(.alice, "bob", "mine")
        let gate = daemon.store.hold(.commitLogout)
        async let ended = daemon.logOut(.alice)
        await gate.reached()
        // Closed to readers from the moment the end began.
        #expect(daemon.sessions.openCache(.alice) == nil)
        async let opened: Void = daemon.logIn(.alice)
        // Whatever fails, nobody is left standing at the gate.
        defer { gate.open() }
        while daemon.sessions.waiting(for: .alice) < 1 {
            try await turn()
        }
        async let purged = daemon.purge(.alice)
        while daemon.sessions.waiting(for: .alice) < 2 {
            try await turn()
        }
        async let read = daemon.get(.alice, "bob", cached: true)
        while daemon.sessions.waiting(for: .alice) < 3 {
            try await turn()
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

/// Where nothing is to be submitted.
private struct ClosedPool: BlockingPool {
    func submit(for uid: UInt32, _ work: @escaping @Sendable () -> Void) {
        Issue.record("this waits behind log-ins")
        work()
    }
}
