import CacheFakes
import LinuxSupport
import Testing

@testable import CacheCore

/// LOGIN, PURGE and LOGOUT of one user as sequences of calls, without disk or clock.
@Suite struct UserStateTests {
    private let world = FakeWorld()

    /// A user with these sessions, the first held by connection 1 if requested.
    private func open(_ sessions: String..., isHeld: Bool = false) throws -> UserState {
        var state = UserState()
        state.loaded(LoginRecord(sessions: Set(sessions.map { OpaqueID($0) }), loggedInAt: 0), service: nil)
        if isHeld {
            state.loggedIn(
                LoginRecord(loggedInAt: 0), LoginRequest(session: OpaqueID(sessions[0]), heldBy: 1), service: nil)
        }
        state.opened(try world.cache())
        return state
    }

    private func loggedOut() -> UserState {
        var state = UserState()
        state.loaded(nil, service: nil)
        return state
    }

    /// A user whose purge or logout has failed.
    private func broken(_ invalidation: UserState.Invalidation) throws -> UserState {
        var state = try open("one", "two")
        _ = state.end(invalidation)
        let isFirst = state.failed(invalidation, reason: "EIO")
        #expect(isFirst)
        return state
    }

    private func describe(_ step: UserState.InvalidationStep?) -> String {
        switch step {
        case nil: "none"
        case .nothing: "not logged in"
        case .endSession(let session, let login, let remaining):
            "end \(session.text), keep \(login.sessions.map(\.text).sorted()), \(remaining) remain"
        case .end(.some, let invalidation): "close, commit \(invalidation)"
        case .end(nil, let invalidation): "commit \(invalidation)"
        }
    }

    private func isRefused(_ state: UserState, _ failure: CacheFailure) -> Bool {
        do {
            _ = try state.logIn(LoginRequest(session: OpaqueID("s")), settings: world.settings, now: 0)
            return false
        } catch {
            return CacheFailure(error) == failure
        }
    }

    @Test func `a purge or logout closes the cache first`() throws {
        for invalidation in [UserState.Invalidation.purge, .logout] {
            var state = try open("one")
            #expect(describe(state.end(invalidation)) == "close, commit \(invalidation)")
            #expect(state.cache == nil && state.isLoggedIn)
            #expect(isRefused(state, .shuttingDown))
            let closed = [state.ended(invalidation).closed, state.ended(invalidation).closed]
            #expect(closed[0] != nil && closed[1] == nil, "the closed cache is not returned exactly once")
            #expect(state.sessions.count == (invalidation == .purge ? 1 : 0))
        }
    }

    @Test func `without a readable login, nothing is closed`() {
        var unknown = loggedOut()
        #expect(
            describe(unknown.end(.purge)) == "not logged in"
                && describe(unknown.logOut(OpaqueID("one"))) == "not logged in")
        var unreadable = UserState()
        #expect(
            describe(unreadable.end(.purge)) == "not logged in" && describe(unreadable.end(.logout)) == "commit logout")
    }

    @Test func `I4, F61: a pending logout remains, and a logout replaces a pending purge`() throws {
        var logout = try broken(.logout)
        #expect(
            describe(logout.end(.purge)) == "commit logout"
                && describe(logout.logOut(OpaqueID("one"))) == "commit logout")
        var purge = try broken(.purge)
        #expect(describe(purge.end(.purge)) == "commit purge" && describe(purge.logOut(nil)) == "commit logout")
        // The sessions are known after the purge.
        #expect(describe(purge.logOut(OpaqueID("one"))) == "commit purge")
        let isFirst = purge.failed(.purge, reason: "EIO")
        #expect(!isFirst, "a second retry is scheduled")
    }

    @Test func `the end of the last session ends the cache`() throws {
        var state = try open("one", "two")
        #expect(describe(state.logOut(OpaqueID("one"))) == "end one, keep [\"two\"], 1 remain")
        #expect(state.sessions.count == 2, "ended before it was durable")
        state.sessionEnded(OpaqueID("one"), LoginRecord(sessions: [OpaqueID("two")], loggedInAt: 0))
        #expect(describe(state.logOut(OpaqueID("three"))) == "end three, keep [\"two\"], 1 remain")
        #expect(describe(state.logOut(OpaqueID("two"))) == "close, commit logout")
    }

    @Test func `F59: a held session ends with the last connection that holds it`() throws {
        var state = try open("one", isHeld: true)
        #expect(describe(state.release(OpaqueID("one"), connection: 2)) == "none")
        #expect(describe(state.release(OpaqueID("other"), connection: 1)) == "none")
        #expect(describe(state.release(OpaqueID("one"), connection: 1)) == "close, commit logout")
        var pending = try open("one", isHeld: true)
        _ = pending.end(.purge)
        _ = pending.failed(.purge, reason: "EIO")
        #expect(describe(pending.release(OpaqueID("one"), connection: 1)) == "commit logout")
    }

    @Test func `a login opens a cache or joins the open one, and fails while a purge is pending`() throws {
        let request = LoginRequest(session: OpaqueID("three"))
        guard case .begin(let first) = try loggedOut().logIn(request, settings: world.settings, now: 7) else {
            Issue.record("the first login does not open the cache")
            return
        }
        #expect(first.sessions == [OpaqueID("three")] && first.loggedInAt == 7)
        guard case .join(let after, _) = try open("one").logIn(request, settings: world.settings, now: 7) else {
            Issue.record("the second login does not join")
            return
        }
        #expect(after.sessions.count == 2 && after.loggedInAt == 0)
        let reason = "purge or logout not durable yet, retrying: EIO"
        #expect(isRefused(try broken(.logout), .inputOutput(reason)))
        #expect(isRefused(UserState(), .shuttingDown))
    }

    @Test func `I11: a logout removes the tokens even if it fails`() throws {
        var state = UserState()
        state.loaded(LoginRecord(token: Secret("t"), loggedInAt: 0), service: nil)
        state.opened(try world.cache())
        _ = state.end(.logout)
        let service = state.endTokens()
        #expect(service == nil && state.credentials.token == nil)
    }

    @Test func `only logged-in users are charged for memory`() throws {
        let state = try open("one")
        #expect(state.bytes(of: .alice) > 5_000)
        #expect(loggedOut().bytes(of: .alice) == 0 && loggedOut().bytes(of: .alice, willBeLoggedIn: true) > 5_000)
        var stopped = state
        let closed = stopped.stop().cache
        #expect(closed != nil && stopped.bytes(of: .alice) == 0)
    }
}
