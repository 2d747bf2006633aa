import CacheFakes
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore

@testable import CacheCore

/// The domain over fakes, with short calls for the commands.
struct Daemon {
    let world: FakeWorld
    let sessions: UserSessions
    let invalidationService: InvalidationService

    var store: FakeStore { world.store }
    var fetcher: FakeFetcher { world.fetcher }

    init(_ world: FakeWorld = FakeWorld()) {
        self.world = world
        sessions = UserSessions(services: world.services, log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        invalidationService = InvalidationService(sessions: sessions, log: sessions.log)
    }

    init(budget: MemoryBudget) {
        self.init(FakeWorld(budget: budget))
    }

    /// A new start with the same disk.
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
        try await invalidationService.logOut(owner, session: session.map { OpaqueID($0) })
    }

    func purge(_ owner: Owner, _ profiles: String...) async throws(CacheFailure) -> Receipt {
        try await invalidationService.purge(owner, profiles: profiles.map { OpaqueID($0) })
    }

    func release(_ owner: Owner, session: String = "default", connection: UInt64) async throws(CacheFailure) {
        try await invalidationService.release(owner, session: OpaqueID(session), connection: connection)
    }

    func put(_ owner: Owner, _ profile: String, _ label: String) async throws(CacheFailure) {
        try await sessions.cache(owner).put(
            ImageKey(profile: OpaqueID(profile)), SampleImage.png(label), timeToLive: nil)
    }

    /// The result of a GET: label and source, `null`, or the failure.
    func get(_ owner: Owner, _ profile: String, cached: Bool = false) async -> String {
        let cache: UserCache
        do throws(CacheFailure) {
            cache = try await sessions.cache(owner)
        } catch {
            return error.name
        }
        let imageKey = ImageKey(profile: OpaqueID(profile))
        if let served = cache.hit(imageKey) { return CoordinatorBench.describe(.success(served)) }
        return await cache.outcome(ImageQuery(imageKey: imageKey, download: cached ? .never : .awaited))
    }

    func users(_ uid: UInt32 = 1000) async throws(CacheFailure) -> [String] {
        try await sessions.loggedInUsers(of: uid, on: world.services.loginPool).map(\.text).sorted()
    }
}

extension Owner {
    static let alice = Owner(uid: 1000, user: OpaqueID("alice"))
    static let carol = Owner(uid: 1000, user: OpaqueID("carol"))
    /// The user alice of another uid.
    static let otherAlice = Owner(uid: 1001, user: OpaqueID("alice"))
}

extension UserCache.Credentials {
    /// The access token, even if expired.
    var token: Secret? { (service?.tokens ?? tokens).access }
}

extension UserCache {
    /// Performs a GET and waits for its result.
    func outcome(_ query: ImageQuery) async -> String {
        await withCheckedContinuation { continuation in
            get(query) { continuation.resume(returning: CoordinatorBench.describe($0)) }
        }
    }
}

extension FakeWorld {
    /// Logs alice in and opens her cache.
    func cache(token: Secret? = nil) throws -> UserCache {
        let generationStore = try store.commitLogin(.alice, LoginRecord(loggedInAt: 0))
        return UserCache(
            owner: .alice, epoch: 1, generationStore: generationStore, credentials: .init(token: token),
            services: services)
    }
}

extension UserSessions {
    /// The number of operations that wait for the owner's lock.
    func waiting(for owner: Owner) -> Int { entry(owner)?.lock.waiting ?? 0 }

    func token(of owner: Owner) -> Secret? { entry(owner)?.state.withLockedValue { $0.credentials.token } }

    /// The number of owners in memory.
    var knownOwners: Int { entries().count }
}

/// Yields to other tasks. Throws when the test's time limit is reached, so that a loop around it fails instead of
/// hanging.
func yieldTask() async throws {
    try Task.checkCancellation()
    await Task.yield()
}
