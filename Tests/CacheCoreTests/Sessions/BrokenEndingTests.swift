import CacheFakes
import LinuxSupport
import NIOCore
import Testing

@testable import CacheCore

/// A purge or log-out that could not be made durable (I4, F7, F8, F61).
@Suite(.timeLimit(.minutes(5))) struct BrokenEndingTests {
    private let daemon = Daemon()
    private static let closed =
        "the end of this user's cache could not be made durable and is being tried again: EIO"

    /// Logged in, with an image, and an ending that has failed.
    private func `break`(_ step: FakeStore.Step, times: Int = .max, afterEffect: Bool = false) async throws {
        try await daemon.logIn(.alice)
        try await daemon.put(.alice, "bob", "mine")
        daemon.store.fail(step, times: times, afterEffect: afterEffect)
        await #expect(throws: CacheFailure.inputOutput("EIO")) {
            _ = step == .commitPurge ? try await daemon.purge(.alice) : try await daemon.logOut(.alice)
        }
    }

    /// Lets time pass until the next try, and waits for it.
    private func tryAgain(_ step: FakeStore.Step, after milliseconds: Int64) async throws {
        let calls = daemon.store.calls(step)
        daemon.world.time.advance(milliseconds: milliseconds)
        while daemon.store.calls(step) == calls {
            try await turn()
        }
    }

    @Test(arguments: [FakeStore.Step.commitPurge, .commitLogout])
    func `F61: until it is done GET, PUT, LOGIN and STAT are IOERR, and nothing is read`(step: FakeStore.Step)
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
        // Another user is not touched.
        try await daemon.logIn(.carol)
    }

    @Test func `F61: it is tried again at growing pauses, the work anew each time, until it is done`() async throws {
        try await self.break(.commitPurge, times: 3)
        #expect(daemon.store.calls(.commitPurge) == 1)
        daemon.world.time.advance(milliseconds: 499)
        #expect(daemon.store.calls(.commitPurge) == 1)
        try await tryAgain(.commitPurge, after: 1)
        while daemon.world.time.timers == 0 {
            try await turn()
        }
        try await tryAgain(.commitPurge, after: 1_000)
        while daemon.world.time.timers == 0 {
            try await turn()
        }
        try await tryAgain(.commitPurge, after: 2_000)
        // As if nothing had happened.
        #expect(await daemon.get(.alice, "bob", cached: true) == "null")
        #expect(try await daemon.sessions.status(.alice)?.sessions == 1)
        try await daemon.put(.alice, "bob", "new")
        #expect(await daemon.get(.alice, "bob") == "new from memory")
        #expect(daemon.world.time.timers == 0)
        #expect(daemon.world.log.events.filter { $0 == "discard" }.count == 1)
        #expect(daemon.store.violations == [])
    }

    @Test func `F61: a log-out that is owed is done by the next try: then NOLOGIN, and a log-in is as any other`()
        async throws
    {
        try await self.break(.commitLogout, times: 1)
        try await tryAgain(.commitLogout, after: 500)
        #expect(await daemon.get(.alice, "bob") == "notLoggedIn")
        try await daemon.logIn(.alice)
        #expect(await daemon.get(.alice, "bob", cached: true) == "null")
        #expect(daemon.store.violations == [])
    }

    @Test(arguments: [false, true])
    func `F61: a LOGOUT while an end is owed does it, and has a receipt of its own`(afterEffect: Bool) async throws {
        try await self.break(.commitLogout, times: 1, afterEffect: afterEffect)
        // Listed as long as the end is owed, even where the disk shows nothing any more: LOGOUT of all does it too.
        #expect(try await daemon.users() == ["alice"])
        let receipt = try await daemon.logout.logOutAll(uid: 1000)
        #expect(receipt.users == 1 && receipt.usage == nil)
        #expect(await daemon.get(.alice, "bob") == "notLoggedIn")
        #expect(try await daemon.users() == [])
        #expect(daemon.world.time.timers == 0)
    }

    @Test func `F61: a log-out that is owed stays owed, whatever is asked for after it`() async throws {
        try await self.break(.commitLogout, times: 1)
        let receipt = try await daemon.purge(.alice)
        #expect(receipt.users == 1 && receipt.sessions == 0)
        #expect(daemon.store.calls(.commitPurge) == 0)
        #expect(await daemon.get(.alice, "bob") == "notLoggedIn")
    }

    @Test func `F61: a purge that is owed turns into the log-out that is asked for`() async throws {
        try await self.break(.commitPurge)
        _ = try await daemon.logOut(.alice)
        #expect(daemon.store.login(of: .alice) == nil)
        #expect(await daemon.get(.alice, "bob") == "notLoggedIn")
        #expect(daemon.world.time.timers == 0)
    }

    @Test func `F61: LOGOUT of one session of two on a broken user does the purge first, then ends that session`()
        async throws
    {
        try await daemon.logIn(.alice, session: "two")
        try await self.break(.commitPurge, times: 2)
        await #expect(throws: CacheFailure.inputOutput("EIO")) { try await daemon.logOut(.alice, session: "two") }
        let receipt = try await daemon.logOut(.alice, session: "two")
        #expect(receipt.sessions == 1)
        #expect(try await daemon.sessions.status(.alice)?.sessions == 1)
        #expect(daemon.store.login(of: .alice)?.sessions == [OpaqueID("default")])
        #expect(await daemon.get(.alice, "bob", cached: true) == "null")
    }

    @Test func `a disk that is full is no promise either: IOERR`() async throws {
        try await daemon.logIn(.alice)
        daemon.store.fail(.commitPurge, with: .noSpace("disk full"))
        await #expect(throws: CacheFailure.inputOutput("disk full")) { try await daemon.purge(.alice) }
    }

    @Test func `I8: there is one next try, however often an invalidation fails and is done by others`() async throws {
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

    @Test func `I11: the token is gone as soon as a log-out has begun`() async throws {
        try await daemon.logIn(.alice, token: Secret([1]))
        daemon.store.fail(.commitLogout, times: .max)
        await #expect(throws: CacheFailure.self) { try await daemon.logOut(.alice) }
        #expect(daemon.sessions.token(of: .alice) == nil)
    }

    @Test func `I4: killed before an owed log-out was done: nothing was promised, and no wiped image comes back`()
        async throws
    {
        try await self.break(.commitLogout)
        let next = daemon.restarted()
        #expect(try await next.logOut(.alice).users == 1)
        #expect(next.store.login(of: .alice) == nil)
    }

    @Test func `I4: nothing is promised of what was found on disk before that is durable`() async throws {
        try await daemon.logIn(.alice)
        // Neither a log-in that changes nothing nor a log-out of nobody has a commit behind it.
        daemon.store.fail(.makeDurable, times: .max)
        await #expect(throws: CacheFailure.inputOutput("EIO")) { try await daemon.logIn(.alice) }
        await #expect(throws: CacheFailure.inputOutput("EIO")) { try await daemon.logOut(.carol) }
        // Reads need nothing durable (I9).
        #expect(daemon.sessions.openCache(.alice) != nil)
        daemon.store.fail(.makeDurable, times: 0)
        try await daemon.logIn(.alice)
        #expect(try await daemon.logOut(.carol).users == 0)
    }
}
