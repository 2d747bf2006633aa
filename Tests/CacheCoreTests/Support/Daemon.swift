import CacheFakes
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore

@testable import CacheCore

/// The domain as a daemon runs it, over fakes, with the commands as a test wants to write them.
struct Daemon {
    let world: FakeWorld
    let sessions: UserSessions
    let logout: InvalidationService

    var store: FakeStore { world.store }
    var fetcher: FakeFetcher { world.fetcher }

    init(_ world: FakeWorld = FakeWorld()) {
        self.world = world
        sessions = UserSessions(services: world.services, log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        logout = InvalidationService(sessions: sessions, log: sessions.log)
    }

    init(budget: MemoryBudget) {
        self.init(FakeWorld(budget: budget))
    }

    /// The next start, on the same disk.
    func restarted() -> Daemon {
        Daemon(FakeWorld(store: world.store.restarted()))
    }

    func logIn(
        _ owner: Owner, session: String = "default", heldBy connection: UInt64? = nil, origin: String? = nil,
        token: Secret? = nil, refresh: Secret? = nil
    ) async throws(CacheFailure) {
        try await sessions.logIn(
            owner,
            LoginRequest(
                session: OpaqueID(session), heldBy: connection, origin: origin, token: token, refresh: refresh))
    }

    func logOut(_ owner: Owner, session: String? = nil) async throws(CacheFailure) -> Receipt {
        try await logout.logOut(owner, session: session.map { OpaqueID($0) })
    }

    func purge(_ owner: Owner, _ profiles: String...) async throws(CacheFailure) -> Receipt {
        try await logout.purge(owner, profiles: profiles.map { OpaqueID($0) })
    }

    func release(_ owner: Owner, session: String = "default", connection: UInt64) async throws(CacheFailure) {
        try await logout.release(owner, session: OpaqueID(session), connection: connection)
    }

    func put(_ owner: Owner, _ profile: String, _ label: String) async throws(CacheFailure) {
        try await sessions.cache(owner).put(
            ImageKey(profile: OpaqueID(profile)), SampleImage.png(label), timeToLive: nil)
    }

    /// What a GET says: a label and where it came from, `null`, or the failure.
    func get(_ owner: Owner, _ profile: String, cached: Bool = false) async -> String {
        let cache: UserCache
        do throws(CacheFailure) {
            cache = try await sessions.cache(owner)
        } catch {
            return error.name
        }
        let imageKey = ImageKey(profile: OpaqueID(profile))
        if let served = cache.hit(imageKey) { return CoordinatorBench.tell(.success(served)) }
        return await cache.outcome(ImageQuery(imageKey: imageKey, download: cached ? .never : .awaited))
    }

    func users(_ uid: UInt32 = 1000) async throws(CacheFailure) -> [String] {
        try await sessions.users(of: uid, on: world.services.lifecycle).map(\.text).sorted()
    }
}

extension Owner {
    static let alice = Owner(uid: 1000, user: OpaqueID("alice"))
    static let carol = Owner(uid: 1000, user: OpaqueID("carol"))
    /// The same account of another uid.
    static let otherAlice = Owner(uid: 1001, user: OpaqueID("alice"))
}

extension UserCache.Account {
    /// The access token, whatever its state.
    var token: Secret? { (service?.tokens ?? tokens).access }
}

extension UserCache {
    /// Asks, and waits for the answer.
    func outcome(_ query: ImageQuery) async -> String {
        await withCheckedContinuation { continuation in
            get(query) { continuation.resume(returning: CoordinatorBench.tell($0)) }
        }
    }
}

extension UserSessions {
    /// How many stand in line behind the one whose turn it is.
    func waiting(for owner: Owner) -> Int { entry(owner)?.lock.waiting ?? 0 }

    func token(of owner: Owner) -> Secret? { entry(owner)?.state.withLockedValue { $0.account.token } }

    /// How many owners are kept in memory.
    var knownOwners: Int { entries().count }
}

/// Lets others run while a test waits for them; throws when the test's time is up, so that what never comes is a
/// failure.
func turn() async throws {
    try Task.checkCancellation()
    await Task.yield()
}
