import CacheFakes
import LinuxSupport
import Testing

@testable import CacheCore

/// What a LOGIN, PURGE or LOGOUT of one user comes to, as sequences of calls, without disk or clock.
@Suite struct UserStateTests {
    private let world = FakeWorld()

    private func cache() throws -> UserCache {
        let generationStore = try world.store.commitLogin(.alice, LoginRecord(loggedInAt: 0))
        return UserCache(
            owner: .alice, epoch: 1, generationStore: generationStore, account: .init(), services: world.services)
    }

    /// Logged in with these sessions, the first of which connection 1 holds if that is said.
    private func open(_ sessions: String..., isHeld: Bool = false) throws -> UserState {
        var state = UserState()
        state.loaded(LoginRecord(sessions: Set(sessions.map { OpaqueID($0) }), loggedInAt: 0), service: nil)
        if isHeld {
            state.loggedIn(
                LoginRecord(loggedInAt: 0), LoginRequest(session: OpaqueID(sessions[0]), heldBy: 1), service: nil)
        }
        state.opened(try cache())
        return state
    }

    private func loggedOut() -> UserState {
        var state = UserState()
        state.loaded(nil, service: nil)
        return state
    }

    /// An ending that has failed.
    private func broken(_ invalidation: UserState.Invalidation) throws -> UserState {
        var state = try open("one", "two")
        _ = state.end(invalidation)
        let isFirst = state.failed(invalidation, reason: "EIO")
        #expect(isFirst)
        return state
    }

    private func tell(_ step: UserState.InvalidationStep?) -> String {
        switch step {
        case nil: "nothing ends"
        case .nothing: "nobody"
        case .endSession(let session, let login, let remaining):
            "end \(session.text), keep \(login.sessions.map(\.text).sorted()), \(remaining) stay"
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

    @Test func `an invalidation of who is logged in closes the cache first, and nobody has it from then on`() throws {
        for invalidation in [UserState.Invalidation.purge, .logout] {
            var state = try open("one")
            #expect(tell(state.end(invalidation)) == "close, commit \(invalidation)")
            #expect(state.cache == nil && state.isLoggedIn)
            #expect(isRefused(state, .shuttingDown))
            let behind = [state.ended(invalidation).closed, state.ended(invalidation).closed]
            #expect(behind[0] != nil && behind[1] == nil, "left behind once")
            #expect(state.sessions.count == (invalidation == .purge ? 1 : 0))
        }
    }

    @Test func `of who is not logged in, or cannot be read, nothing is closed`() {
        var stranger = loggedOut()
        #expect(tell(stranger.end(.purge)) == "nobody" && tell(stranger.logOut(OpaqueID("one"))) == "nobody")
        var unreadable = UserState()
        #expect(tell(unreadable.end(.purge)) == "nobody" && tell(unreadable.end(.logout)) == "commit logout")
    }

    @Test func `I4, F61: an owed log-out stays owed, an owed purge turns into the log-out`() throws {
        var logout = try broken(.logout)
        #expect(tell(logout.end(.purge)) == "commit logout" && tell(logout.logOut(OpaqueID("one"))) == "commit logout")
        var purge = try broken(.purge)
        #expect(tell(purge.end(.purge)) == "commit purge" && tell(purge.logOut(nil)) == "commit logout")
        // What is left of the sessions is known when the purge is done.
        #expect(tell(purge.logOut(OpaqueID("one"))) == "commit purge")
        let isFirst = purge.failed(.purge, reason: "EIO")
        #expect(!isFirst, "there is one next try, not one for each failure")
    }

    @Test func `one session of several ends, the last ends the cache`() throws {
        var state = try open("one", "two")
        #expect(tell(state.logOut(OpaqueID("one"))) == "end one, keep [\"two\"], 1 stay")
        #expect(state.sessions.count == 2, "not before that is durable")
        state.sessionEnded(OpaqueID("one"), LoginRecord(sessions: [OpaqueID("two")], loggedInAt: 0))
        #expect(tell(state.logOut(OpaqueID("three"))) == "end three, keep [\"two\"], 1 stay")
        #expect(tell(state.logOut(OpaqueID("two"))) == "close, commit logout")
    }

    @Test func `F59: a session that is held ends with the last connection that holds it, and so may the log-in`() throws
    {
        var state = try open("one", isHeld: true)
        #expect(tell(state.release(OpaqueID("one"), connection: 2)) == "nothing ends")
        #expect(tell(state.release(OpaqueID("other"), connection: 1)) == "nothing ends")
        #expect(tell(state.release(OpaqueID("one"), connection: 1)) == "close, commit logout")
        var owed = try open("one", isHeld: true)
        _ = owed.end(.purge)
        _ = owed.failed(.purge, reason: "EIO")
        #expect(tell(owed.release(OpaqueID("one"), connection: 1)) == "commit logout")
    }

    @Test func `a log-in begins a cache, joins the open one, and waits for no invalidation that is owed`() throws {
        let request = LoginRequest(session: OpaqueID("three"))
        guard case .begin(let first) = try loggedOut().logIn(request, settings: world.settings, now: 7) else {
            return #expect(Bool(false), "the first begins")
        }
        #expect(first.sessions == [OpaqueID("three")] && first.loggedInAt == 7)
        guard case .join(let after, _) = try open("one").logIn(request, settings: world.settings, now: 7) else {
            return #expect(Bool(false), "a further one joins")
        }
        #expect(after.sessions.count == 2 && after.loggedInAt == 0)
        let sentence = "the end of this user's cache could not be made durable and is being tried again: EIO"
        #expect(isRefused(try broken(.logout), .inputOutput(sentence)))
        #expect(isRefused(UserState(), .shuttingDown))
    }

    @Test func `I11: with a log-out the tokens are gone, whatever comes of it`() throws {
        var state = UserState()
        state.loaded(LoginRecord(token: Secret("t"), loggedInAt: 0), service: nil)
        state.opened(try cache())
        _ = state.end(.logout)
        let service = state.endTokens()
        #expect(service == nil && state.account.token == nil)
    }

    @Test func `who is logged in counts, who is not takes no memory`() throws {
        let state = try open("one")
        #expect(state.bytes(of: .alice) > 5_000)
        #expect(loggedOut().bytes(of: .alice) == 0 && loggedOut().bytes(of: .alice, willBeLoggedIn: true) > 5_000)
        var stopped = state
        let closed = stopped.stop().cache
        #expect(closed != nil && stopped.bytes(of: .alice) == 0)
    }
}
