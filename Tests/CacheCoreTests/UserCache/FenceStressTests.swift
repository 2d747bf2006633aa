import CacheFakes
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore

/// Many at once, on real threads, with the one check that matters: what a receipt has promised.
@Suite(.timeLimit(.minutes(5))) struct FenceStressTests {
    private static let owners: [Owner] = [.alice, .carol, .otherAlice]
    private static let profiles = ["bob", "eve"]

    @Test(arguments: [(1, false), (2, false), (3, true), (4, true)])
    func `I3, F41, F42: after a receipt no GET returns bytes from before it, whatever goes on at once`(
        seed: UInt64, isFailing: Bool
    ) async throws {
        let ledger = Ledger()
        let threads = ThreadPool(threads: 3)
        let world = FakeWorld(disk: threads, lifecycle: ThreadPool(threads: 2), memory: 16 << 10)
        let daemon = Daemon(world)
        world.fetcher.answersOn = threads
        world.fetcher.answer = { request in
            let number = ledger.nextNumber()
            if number % 11 == 0 { return .failed(.origin("status 500")) }
            if number % 7 == 0 { return .missing(ResponseHeaders()) }
            if let etag = request.condition?.etag, number % 3 > 0 {
                // What is held still holds, or something else does, so that it is asked for again.
                return .notModified(ResponseHeaders(["etag": [number % 5 == 0 ? "\"another\"" : etag]]))
            }
            // Stale at once now and then, so that it is revalidated behind.
            let age = number % 3 == 0 ? "max-age=0" : "max-age=60"
            return SampleImage.downloaded(
                "d\(number)", headers: ["cache-control": [age], "etag": ["\"\(number)\""]])
        }
        await withTaskGroup(of: Void.self) { group in
            for worker in 0..<8 {
                group.addTask {
                    var random = SplitMix(state: seed << 32 | UInt64(worker))
                    for _ in 0..<250 {
                        let owner = Self.owners.randomElement(using: &random) ?? .alice
                        let profile = Self.profiles.randomElement(using: &random) ?? "bob"
                        if isFailing, random.next() % 16 == 0 {
                            let step: FakeStore.Step = random.next() % 2 == 0 ? .commitPurge : .commitLogout
                            world.store.fail(step, times: 1, afterEffect: step == .commitLogout)
                        }
                        // What is judged and written at once now waits its turn then; what is seen without waiting,
                        // too.
                        world.fetcher.isBusy = random.next() % 3 == 0
                        world.store.isInPageCache = random.next() % 2 == 0
                        await Self.act(
                            random.next() % 100, worker: worker, owner, profile, daemon, ledger)
                        world.time.advance(milliseconds: 300)
                    }
                }
            }
        }
        // All is over: nothing is left of anybody.
        for step in [FakeStore.Step.commitPurge, .commitLogout] { world.store.fail(step, times: 0) }
        for uid in [1000, 1001] as [UInt32] { _ = try await daemon.logout.logOutAll(uid: uid) }
        #expect(ledger.violations == [])
        #expect(world.store.violations == [])
        // What nothing leads to any more leaves the tier behind the receipt.
        while world.services.memory.statistics.images > 0 { try await turn() }
        #expect(try await daemon.users() == [])
        #expect(daemon.sessions.knownOwners == 0)
        // The run did what it is for.
        #expect(ledger.imagesSeen > 50)
        #expect(ledger.receipts > 50)
        #expect(world.services.counters[.notModified] > 0)
    }

    private static func act(
        _ dice: UInt64, worker: Int, _ owner: Owner, _ profile: String, _ daemon: Daemon, _ ledger: Ledger
    ) async {
        let imageKey = ImageKey(profile: OpaqueID(profile))
        do throws(CacheFailure) {
            switch dice {
            case 0..<15:
                try await daemon.logIn(owner, session: "\(dice % 2)", heldBy: dice < 5 ? UInt64(worker) : nil)
            case 15..<35:
                let cache = try await daemon.sessions.cache(owner)
                let number = ledger.nextNumber()
                let put = await daemon.world.services.disk.attempt {
                    try cache.put(imageKey, SampleImage.png("p\(number)"), timeToLive: 60)
                }
                if case .success = put { ledger.stored(number, owner, profile) }
            case 35..<75:
                // Only what was in force before a hit was looked for is a promise to it.
                let promises = ledger.promises(owner, profile)
                if let cache = daemon.sessions.openCache(owner), let served = cache.hit(imageKey) {
                    ledger.saw(served.image.label, against: promises)
                } else {
                    await get(imageKey, of: owner, daemon, ledger, leaving: dice < 40)
                }
            case 75..<83:
                let promise = ledger.promise(owner, nil)
                _ = try await daemon.purge(owner)
                ledger.keep(promise)
            case 83..<91:
                let promise = ledger.promise(owner, profile)
                _ = try await daemon.purge(owner, profile)
                ledger.keep(promise)
            case 91..<95:
                try await daemon.release(owner, session: "\(dice % 2)", connection: UInt64(worker))
            default:
                let promise = ledger.promise(owner, nil)
                if try await daemon.logOut(owner, session: dice == 99 ? "0" : nil).sessions == 0 {
                    ledger.keep(promise)
                }
            }
        } catch {
            // Not logged in, purged while waiting, or an end that is owed: all of them are right answers here.
        }
    }

    private static func get(
        _ imageKey: ImageKey, of owner: Owner, _ daemon: Daemon, _ ledger: Ledger, leaving: Bool
    ) async {
        let cache: UserCache
        do throws(CacheFailure) {
            cache = try await daemon.sessions.cache(owner)
        } catch {
            return
        }
        let query = ImageQuery(imageKey: imageKey)
        let promises = ledger.promises(owner, imageKey.profile.text)
        let lookup = cache.lookAtDisk(query)
        if let served = lookup.image { return ledger.saw(served.image.label, against: promises) }
        if leaving {
            return cache.leave(cache.get(query, after: lookup) { ledger.answered($0, owner, imageKey.profile.text) })
        }
        await withCheckedContinuation { continuation in
            cache.get(query, after: lookup) { outcome in
                ledger.answered(outcome, owner, imageKey.profile.text)
                continuation.resume()
            }
        }
    }
}

/// What was stored when, what receipts have promised about it, and who broke a promise.
///
/// Every image carries a number. A log-out or purge of a user ends all with a number from before it began: whoever has
/// such a number also had the cache that was ended. A purge of a profile ends every download that had begun and every
/// PUT that was done.
private final class Ledger: Sendable {
    struct Promise: Sendable {
        let owner: Owner
        let profile: String?
        let before: Int
        let done: Set<Int>
    }

    struct Promises: Sendable {
        var before = 0
        var downloadsBefore = 0
        var gone: Set<Int> = []
    }

    private struct Key: Hashable {
        let owner: Owner
        let profile: String
    }

    private struct State {
        var lastNumber = 0
        var stored: [Key: Set<Int>] = [:]
        var promises: [Key: Promises] = [:]
        var violations: [String] = []
        var imagesSeen = 0
        var receipts = 0
    }

    private let state = NIOLockedValueBox(State())

    var violations: [String] { state.withLockedValue { $0.violations } }
    var imagesSeen: Int { state.withLockedValue { $0.imagesSeen } }
    var receipts: Int { state.withLockedValue { $0.receipts } }

    func nextNumber() -> Int {
        state.withLockedValue { state in
            state.lastNumber += 1
            return state.lastNumber
        }
    }

    func stored(_ number: Int, _ owner: Owner, _ profile: String) {
        state.withLockedValue { _ = $0.stored[Key(owner: owner, profile: profile), default: []].insert(number) }
    }

    /// What a receipt would promise for an ending that begins now.
    func promise(_ owner: Owner, _ profile: String?) -> Promise {
        state.withLockedValue { state in
            state.lastNumber += 1
            let done = profile.flatMap { state.stored[Key(owner: owner, profile: $0)] } ?? []
            return Promise(owner: owner, profile: profile, before: state.lastNumber, done: done)
        }
    }

    /// The receipt is here.
    func keep(_ promise: Promise) {
        state.withLockedValue { state in
            state.receipts += 1
            for profile in promise.profile.map({ [$0] }) ?? ["bob", "eve"] {
                var promises = state.promises[Key(owner: promise.owner, profile: profile)] ?? Promises()
                if promise.profile == nil {
                    promises.before = max(promises.before, promise.before)
                } else {
                    promises.downloadsBefore = max(promises.downloadsBefore, promise.before)
                    promises.gone.formUnion(promise.done)
                }
                state.promises[Key(owner: promise.owner, profile: profile)] = promises
            }
        }
    }

    func promises(_ owner: Owner, _ profile: String) -> Promises {
        state.withLockedValue { $0.promises[Key(owner: owner, profile: profile)] ?? Promises() }
    }

    /// An answer has arrived: every receipt there is by now counts.
    func answered(_ outcome: GetOutcome, _ owner: Owner, _ profile: String) {
        guard case .success(let served?) = outcome else { return }
        saw(served.image.label, against: promises(owner, profile))
    }

    func saw(_ label: String, against promises: Promises) {
        state.withLockedValue { state in
            state.imagesSeen += 1
            guard let number = Int(label.dropFirst()) else {
                return state.violations.append("\(label) is no label of this run")
            }
            let isDownload = label.hasPrefix("d")
            if number < promises.before || isDownload && number < promises.downloadsBefore
                || promises.gone.contains(number)
            {
                state.violations.append("\(label) after a receipt: \(promises)")
            }
        }
    }
}
