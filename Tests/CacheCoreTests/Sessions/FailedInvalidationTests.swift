import CacheFakes
import LinuxSupport
import NIOCore
import Testing

@testable import CacheCore

/// A purge or logout that could not be made durable (I4, F7, F8, F61).
@Suite(.timeLimit(.minutes(5))) struct FailedInvalidationTests {
    private let daemon = Daemon()
    private static let closed =
        "purge or logout not durable yet, retrying: EIO"

    /// A logged-in user with an image whose purge or logout has failed.
    private func `break`(_ step: FakeStore.Step, times: Int = .max, afterEffect: Bool = false) async throws {
        try await daemon.logIn(.alice)
        try await daemon.put(.alice, "bob", "mine")
        daemon.store.fail(step, times: times, afterEffect: afterEffect)
        await #expect(throws: CacheFailure.inputOutput("EIO")) {
            _ = step == .commitPurge ? try await daemon.purge(.alice) : try await daemon.logOut(.alice)
        }
    }

    /// Lets time pass until the next retry, and waits for it.
    private func waitForRetry(_ step: FakeStore.Step, after milliseconds: Int64) async throws {
        let calls = daemon.store.calls(step)
        daemon.world.time.advance(milliseconds: milliseconds)
        while daemon.store.calls(step) == calls {
            try await yieldTask()
        }
    }

    @Test(arguments: [FakeStore.Step.commitPurge, .commitLogout])
    func `F61: until a retry succeeds GET, PUT, LOGIN and STAT get IOERR, and nothing is read`(step: FakeStore.Step)
        async throws
    {
        try await self.break(step)
        #expect(daemon.sessions.openCache(.alice) == nil)
        #expect(await daemon.get(.alice, "bob") == CacheFailure.inputOutput(Self.closed).name)
        for _ in 0..<2 {
            await #expect(throws: CacheFailure.inputOutput(Self.closed)) { try await daemon.put(.alice, "bob", "x") }
            await #expect(throws: CacheFailure.inputOutput(Self.closed)) { try await daemon.logIn(.alice) }
            await #expect(throws: CacheFailure.inputOutput(Self.closed)) { try await daemon.sessions.status(.alice) }
            await #expect(throws: CacheFailure.inputOutput("EIO")) { try await daemon.purge(.alice, "bob") }
        }
        #expect(daemon.world.services.memory.statistics.images == 0)
        #expect(daemon.world.log.events.contains("wipe"))
        #expect(!daemon.world.log.events.contains("discard"))
        #expect(daemon.store.calls(.read) == 0)
        // Other users are not affected.
        try await daemon.logIn(.carol)
    }

    @Test func `F61: a failed purge is retried completely, at increasing intervals, until it succeeds`() async throws {
        try await self.break(.commitPurge, times: 3)
        #expect(daemon.store.calls(.commitPurge) == 1)
        daemon.world.time.advance(milliseconds: 499)
        #expect(daemon.store.calls(.commitPurge) == 1)
        try await waitForRetry(.commitPurge, after: 1)
        while daemon.world.time.timers == 0 {
            try await yieldTask()
        }
        try await waitForRetry(.commitPurge, after: 1_000)
        while daemon.world.time.timers == 0 {
            try await yieldTask()
        }
        try await waitForRetry(.commitPurge, after: 2_000)
        // The user works as before.
        #expect(await daemon.get(.alice, "bob", cached: true) == "null")
        #expect(try await daemon.sessions.status(.alice)?.sessions == 1)
        try await daemon.put(.alice, "bob", "new")
        #expect(await daemon.get(.alice, "bob") == "new from memory")
        #expect(daemon.world.time.timers == 0)
        #expect(daemon.world.log.events.filter { $0 == "discard" }.count == 1)
        #expect(daemon.store.violations == [])
    }

    @Test func `F61: a retry completes a pending logout; then requests get NOLOGIN and a login succeeds`()
        async throws
    {
        try await self.break(.commitLogout, times: 1)
        try await waitForRetry(.commitLogout, after: 500)
        #expect(await daemon.get(.alice, "bob") == "notLoggedIn")
        try await daemon.logIn(.alice)
        #expect(await daemon.get(.alice, "bob", cached: true) == "null")
        #expect(daemon.store.violations == [])
    }

    @Test(arguments: [false, true])
    func `F61: a LOGOUT during a pending logout completes it and gets its own receipt`(afterEffect: Bool) async throws {
        try await self.break(.commitLogout, times: 1, afterEffect: afterEffect)
        // Listed while the logout is pending, even if the disk shows no login: LOGOUT of all includes it.
        #expect(try await daemon.users() == ["alice"])
        let receipt = try await daemon.invalidationService.logOutAll(uid: 1000)
        #expect(receipt.users == 1 && receipt.usage == nil)
        #expect(await daemon.get(.alice, "bob") == "notLoggedIn")
        #expect(try await daemon.users() == [])
        #expect(daemon.world.time.timers == 0)
    }

    @Test func `F61: a pending logout is not replaced by a later command`() async throws {
        try await self.break(.commitLogout, times: 1)
        let receipt = try await daemon.purge(.alice)
        #expect(receipt.users == 1 && receipt.sessions == 0)
        #expect(daemon.store.calls(.commitPurge) == 0)
        #expect(await daemon.get(.alice, "bob") == "notLoggedIn")
    }

    @Test func `F61: a LOGOUT replaces a pending purge`() async throws {
        try await self.break(.commitPurge)
        _ = try await daemon.logOut(.alice)
        #expect(daemon.store.login(of: .alice) == nil)
        #expect(await daemon.get(.alice, "bob") == "notLoggedIn")
        #expect(daemon.world.time.timers == 0)
    }

    @Test func `F61: LOGOUT of one session of two completes a pending purge first`() async throws {
        try await daemon.logIn(.alice, session: "two")
        try await self.break(.commitPurge, times: 2)
        await #expect(throws: CacheFailure.inputOutput("EIO")) { try await daemon.logOut(.alice, session: "two") }
        let receipt = try await daemon.logOut(.alice, session: "two")
        #expect(receipt.sessions == 1)
        #expect(try await daemon.sessions.status(.alice)?.sessions == 1)
        #expect(daemon.store.login(of: .alice)?.sessions == [OpaqueID("default")])
        #expect(await daemon.get(.alice, "bob", cached: true) == "null")
    }

    @Test func `on a full disk, a purge gets IOERR`() async throws {
        try await daemon.logIn(.alice)
        daemon.store.fail(.commitPurge, with: .noSpace("disk full"))
        await #expect(throws: CacheFailure.inputOutput("disk full")) { try await daemon.purge(.alice) }
    }

    @Test func `I8: there is one retry timer, however often a purge fails`() async throws {
        try await daemon.logIn(.alice)
        for _ in 0..<5 {
            daemon.store.fail(.commitPurge, times: 2)
            for _ in 0..<2 {
                await #expect(throws: CacheFailure.self) { try await daemon.purge(.alice) }
            }
            #expect(daemon.world.time.timers == 1)
            _ = try await daemon.purge(.alice)
            #expect(daemon.world.time.timers == 0)
        }
    }

    @Test func `I11: a logout removes the token at once`() async throws {
        try await daemon.logIn(.alice, token: Secret([1]))
        daemon.store.fail(.commitLogout, times: .max)
        await #expect(throws: CacheFailure.self) { try await daemon.logOut(.alice) }
        #expect(daemon.sessions.token(of: .alice) == nil)
    }

    @Test func `I4: after a kill with a pending logout, no wiped image returns`() async throws {
        try await self.break(.commitLogout)
        let next = daemon.restarted()
        #expect(try await next.logOut(.alice).users == 1)
        #expect(next.store.login(of: .alice) == nil)
    }

    @Test func `I4: state found on disk is made durable before a reply`() async throws {
        try await daemon.logIn(.alice)
        // A login or a logout that changes nothing has no commit.
        daemon.store.fail(.makeDurable, times: .max)
        await #expect(throws: CacheFailure.inputOutput("EIO")) { try await daemon.logIn(.alice) }
        await #expect(throws: CacheFailure.inputOutput("EIO")) { try await daemon.logOut(.carol) }
        await #expect(throws: CacheFailure.inputOutput("EIO")) { try await daemon.logOut(.alice, session: "other") }
        // Reads do not need durable state (I9).
        #expect(daemon.sessions.openCache(.alice) != nil)
        daemon.store.fail(.makeDurable, times: 0)
        try await daemon.logIn(.alice)
        #expect(try await daemon.logOut(.carol).users == 0)
        #expect(try await daemon.logOut(.alice, session: "other").sessions == 1)
    }

    @Test(arguments: [false, true])
    func `after a failed LOGOUT of a session, a LOGIN stores that session again`(afterEffect: Bool) async throws {
        try await daemon.logIn(.alice, session: "one")
        try await daemon.logIn(.alice, session: "two")
        daemon.store.fail(.commitSessions, afterEffect: afterEffect)
        await #expect(throws: CacheFailure.inputOutput("EIO")) { try await daemon.logOut(.alice, session: "one") }
        try await daemon.logIn(.alice, session: "one")
        #expect(daemon.store.login(of: .alice)?.sessions == [OpaqueID("one"), OpaqueID("two")])
    }

    @Test(arguments: [false, true])
    func `after a failed LOGIN of a session, its LOGOUT removes it from disk`(afterEffect: Bool) async throws {
        try await daemon.logIn(.alice, session: "one")
        daemon.store.fail(.commitSessions, afterEffect: afterEffect)
        await #expect(throws: CacheFailure.inputOutput("EIO")) { try await daemon.logIn(.alice, session: "two") }
        #expect(try await daemon.logOut(.alice, session: "two").sessions == 1)
        #expect(daemon.store.login(of: .alice)?.sessions == [OpaqueID("one")])
    }
}
