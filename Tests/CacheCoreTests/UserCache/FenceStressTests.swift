import CacheFakes
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import CacheCore

/// Random commands on real threads; the ledger checks every served image against all receipts.
@Suite(.timeLimit(.minutes(5))) struct FenceStressTests {
    private static let owners: [Owner] = [.alice, .carol, .otherAlice]
    private static let profiles = ["bob", "eve"]

    @Test(arguments: [(1, false), (2, false), (3, true), (4, true)])
    func `I3, F41, F42: after a receipt no GET returns bytes from before it, in random concurrent histories`(
        seed: UInt64, isFailing: Bool
    ) async throws {
        let ledger = Ledger()
        let threads = ThreadPool(threads: 3)
        let world = FakeWorld(imagePool: threads, loginPool: ThreadPool(threads: 2), memory: 16 << 10)
        let daemon = Daemon(world)
        world.fetcher.answersOn = threads
        world.fetcher.answer = { request in
            let number = ledger.nextNumber()
            if number % 11 == 0 { return .failed(.origin("status 500")) }
            if number % 7 == 0 { return .missing(ResponseHeaders()) }
            if let etag = request.condition?.etag, number % 3 > 0 {
                // A 304 for the stored image, or for another one, which causes an unconditional request.
                return .notModified(ResponseHeaders(["etag": [number % 5 == 0 ? "\"another\"" : etag]]))
            }
            // Some images are stale at once, so that they are revalidated in the background.
            let age = number % 3 == 0 ? "max-age=0" : "max-age=60"
            return SampleImage.downloaded(
                "d\(number)", headers: ["cache-control": [age], "etag": ["\"\(number)\""]])
        }
        await withTaskGroup(of: Void.self) { group in
            for worker in 0..<8 {
                group.addTask {
                    var random = SeededRandom(seed: seed << 32 | UInt64(worker))
                    for _ in 0..<250 {
                        let owner = Self.owners.randomElement(using: &random) ?? .alice
                        let profile = Self.profiles.randomElement(using: &random) ?? "bob"
                        if isFailing, random.next() % 16 == 0 {
                            let step: FakeStore.Step = random.next() % 2 == 0 ? .commitPurge : .commitLogout
                            world.store.fail(step, times: 1, afterEffect: step == .commitLogout)
                        }
                        // Varies between inline and queued writes, and between disk lookups with and without waiting.
                        world.fetcher.isBusy = random.next() % 3 == 0
                        world.store.isInPageCache = random.next() % 2 == 0
                        await Self.run(
                            random.next() % 100, worker: worker, owner, profile, daemon, ledger)
                        world.time.advance(milliseconds: 300)
                    }
                }
            }
        }
        for step in [FakeStore.Step.commitPurge, .commitLogout] { world.store.fail(step, times: 0) }
        for uid in [1000, 1001] as [UInt32] { _ = try await daemon.invalidationService.logOutAll(uid: uid) }
        #expect(ledger.violations == [])
        #expect(world.store.violations == [])
        // Entries of closed caches leave the tier after the receipt.
        while world.services.memory.statistics.images > 0 { try await yieldTask() }
        #expect(try await daemon.users() == [])
        #expect(daemon.sessions.knownOwners == 0)
        // The run covered what it is meant to cover.
        #expect(ledger.imagesSeen > 50)
        #expect(ledger.receipts > 50)
        #expect(world.services.counters[.notModified] > 0)
    }

    private static func run(
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
                let put = await daemon.world.services.imagePool.attempt {
                    try cache.put(imageKey, SampleImage.png("p\(number)"), timeToLive: 60)
                }
                if case .success = put { ledger.stored(number, owner, profile) }
            case 35..<75:
                // A hit must respect the receipts from before its lookup.
                let guarantees = ledger.guarantees(owner, profile)
                if let cache = daemon.sessions.openCache(owner), let served = cache.hit(imageKey) {
                    ledger.check(served.image.label, against: guarantees)
                } else {
                    await get(imageKey, of: owner, daemon, ledger, leaving: dice < 40)
                }
            case 75..<83:
                let guarantee = ledger.guarantee(owner, nil)
                _ = try await daemon.purge(owner)
                ledger.addReceipt(guarantee)
            case 83..<91:
                let guarantee = ledger.guarantee(owner, profile)
                _ = try await daemon.purge(owner, profile)
                ledger.addReceipt(guarantee)
            case 91..<95:
                try await daemon.release(owner, session: "\(dice % 2)", connection: UInt64(worker))
            default:
                let guarantee = ledger.guarantee(owner, nil)
                if try await daemon.logOut(owner, session: dice == 99 ? "0" : nil).sessions == 0 {
                    ledger.addReceipt(guarantee)
                }
            }
        } catch {
            // NOLOGIN, CANCELLED and IOERR are correct replies here.
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
        let guarantees = ledger.guarantees(owner, imageKey.profile.text)
        let lookup = cache.lookUpOnDisk(query)
        if let served = lookup.image { return ledger.check(served.image.label, against: guarantees) }
        if leaving {
            return cache.leave(cache.get(query, after: lookup) { ledger.checkReply($0, owner, imageKey.profile.text) })
        }
        await withCheckedContinuation { continuation in
            cache.get(query, after: lookup) { outcome in
                ledger.checkReply(outcome, owner, imageKey.profile.text)
                continuation.resume()
            }
        }
    }
}

/// Records which image was stored when and what each receipt guarantees, and collects violations. Every image has a
/// number. A receipt for a user excludes all images with a number from before its command. A receipt for a profile
/// excludes all downloads that began and all PUTs that completed before its command.
private final class Ledger: Sendable {
    struct Guarantee: Sendable {
        let owner: Owner
        let profile: String?
        let before: Int
        let done: Set<Int>
    }

    struct Guarantees: Sendable {
        var before = 0
        var downloadsBefore = 0
        var excluded: Set<Int> = []
    }

    private struct Key: Hashable {
        let owner: Owner
        let profile: String
    }

    private struct State {
        var lastNumber = 0
        var stored: [Key: Set<Int>] = [:]
        var guarantees: [Key: Guarantees] = [:]
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

    /// The guarantee of a receipt for a command that begins now.
    func guarantee(_ owner: Owner, _ profile: String?) -> Guarantee {
        state.withLockedValue { state in
            state.lastNumber += 1
            let done = profile.flatMap { state.stored[Key(owner: owner, profile: $0)] } ?? []
            return Guarantee(owner: owner, profile: profile, before: state.lastNumber, done: done)
        }
    }

    /// Called when the receipt has arrived.
    func addReceipt(_ guarantee: Guarantee) {
        state.withLockedValue { state in
            state.receipts += 1
            for profile in guarantee.profile.map({ [$0] }) ?? ["bob", "eve"] {
                var guarantees = state.guarantees[Key(owner: guarantee.owner, profile: profile)] ?? Guarantees()
                if guarantee.profile == nil {
                    guarantees.before = max(guarantees.before, guarantee.before)
                } else {
                    guarantees.downloadsBefore = max(guarantees.downloadsBefore, guarantee.before)
                    guarantees.excluded.formUnion(guarantee.done)
                }
                state.guarantees[Key(owner: guarantee.owner, profile: profile)] = guarantees
            }
        }
    }

    func guarantees(_ owner: Owner, _ profile: String) -> Guarantees {
        state.withLockedValue { $0.guarantees[Key(owner: owner, profile: profile)] ?? Guarantees() }
    }

    /// Called when a reply has arrived. It must respect all receipts so far.
    func checkReply(_ outcome: Result<ServedImage?, CacheFailure>, _ owner: Owner, _ profile: String) {
        guard case .success(let served?) = outcome else { return }
        check(served.image.label, against: guarantees(owner, profile))
    }

    func check(_ label: String, against guarantees: Guarantees) {
        state.withLockedValue { state in
            state.imagesSeen += 1
            guard let number = Int(label.dropFirst()) else {
                return state.violations.append("\(label) is no label of this run")
            }
            let isDownload = label.hasPrefix("d")
            if number < guarantees.before || isDownload && number < guarantees.downloadsBefore
                || guarantees.excluded.contains(number)
            {
                state.violations.append("\(label) after a receipt: \(guarantees)")
            }
        }
    }
}
