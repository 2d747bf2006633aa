import CacheCore
import Foundation
import Glibc
import Logging
import NIOConcurrencyHelpers
import Testing

@testable import DiskStore

/// Shares of the store's quota by account, and conditions that could disable it.
@Suite struct SharesTests {
    private let tree: TestTree
    private let costs = DiskCosts(block: 4096, maximumEntry: 1 << 30)
    /// Bytes of a small image and its directory.
    private var entry: Int { costs.file(1_124) }
    private var entryAlone: Int { entry + costs.directory }

    init() throws {
        tree = try TestTree()
    }

    private func buckets() throws -> Int {
        let root = tree.cache + "/users"
        let all = try #require(FileManager.default.enumerator(atPath: root)?.allObjects as? [String])
        return all.filter { $0.split(separator: "/").count == 3 }.count
    }

    @Test func `I8: dropping an image or rejecting an invalid entry removes an empty bucket`() throws {
        try tree.withStore { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob"), testImage(1))
            try generationStore.drop(imageKey("bob")) { true }
            #expect(generationStore.usage == Usage())
            #expect(try buckets() == 0)

            try generationStore.put(imageKey("bob"), testImage(1))
            try #require(truncate(try #require(tree.entries.first), 100) == 0)
            #expect(try generationStore.bytes(imageKey("bob")) == nil)
            #expect(try buckets() == 0)
        }
    }

    @Test func `I8: a write that is not committed leaves no bucket`() throws {
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            for firstAnswer in [false, true] {
                var answers = [firstAnswer, false][...]
                let isCommitted = try generationStore.write(
                    imageKey("bob"), testImage(1), isCurrent: { answers.popFirst() ?? false }, committed: {})
                #expect(!isCommitted)
                #expect(try buckets() == 0)
            }
            for call in [SystemCall.write, .rename] {
                system.plan { made, _, _ in made == call ? .fail(EIO) : nil }
                #expect(throws: StoreError.self) { try generationStore.put(imageKey("bob"), testImage(1)) }
                #expect(try buckets() == 0)
            }
            let once = Once()
            system.plan { call, _, _ in
                if call == .write, once.isFirst() {
                    expectSuccess { _ = try generationStore.remove([OpaqueID("bob")]) }
                }
                return nil
            }
            #expect(try !generationStore.put(imageKey("bob"), testImage(1)))
            #expect(!once.isFirst())
            #expect(try buckets() == 0)
            #expect(generationStore.usage == Usage())
        }
    }

    @Test func `I8: a user without images to evict does not prevent eviction from others`() throws {
        try tree.withStore(tree.configuration(quota: 100 * entryAlone)) { store in
            let full = try store.commitLogin(alice, .plain)
            let empty = try store.commitLogin(bob, .plain)
            for number in 0..<20 { try full.put(imageKey("\(number)"), testImage(1)) }
            for number in 0..<70 { try empty.put(imageKey("\(number)"), testImage(1)) }
            // The images are removed by hand, so the ledger still counts them.
            for path in tree.entries where path.contains(try name(of: empty)) { unlink(path) }
            for path in try directories(of: empty) { rmdir(path) }
            for number in 20..<120 { try full.put(imageKey("\(number)"), testImage(1)) }
            #expect(tree.entries.count < 50)
            #expect(store.usageTotal.bytes <= 100 * entryAlone)
        }
    }

    @Test func `I3, I8: a purge does not wait for its user's PUT to evict other users' images`() throws {
        let system = FaultySystem()
        try tree.withStore(tree.configuration(quota: 40 * entryAlone), system: system) { store in
            let full = try store.commitLogin(carol, .plain)
            for number in 0..<30 { try full.put(imageKey("\(number)"), testImage(1)) }
            let generationStore = try store.commitLogin(alice, .plain)
            let isClosed = DispatchSemaphore(value: 0)
            let didWait = NIOLockedValueBox<Bool?>(nil)
            system.plan { call, _, ofKind in
                // The first image of another user is about to be evicted.
                guard call == .unlink, ofKind == 1 else { return nil }
                Thread.detachNewThread {
                    generationStore.close()
                    isClosed.signal()
                }
                // Reached only if the purge waits.
                let isDone = isClosed.wait(timeout: .now() + 20) == .success
                didWait.withLockedValue { $0 = !isDone }
                return nil
            }
            #expect(try generationStore.put(imageKey("bob"), testImage(2, count: 150_000)))
            #expect(didWait.withLockedValue { $0 } == false)
            #expect(store.usageTotal.bytes <= 40 * entryAlone)
        }
    }

    private func name(of generationStore: any GenerationStore) throws -> String {
        try #require(generationStore as? DiskGenerationStore).generation.directoryName.text
    }

    private func directories(of generationStore: any GenerationStore) throws -> [String] {
        let root = "\(tree.cache)/users/1000/\(try name(of: generationStore))"
        return try FileManager.default.contentsOfDirectory(atPath: root).map { "\(root)/\($0)" }
    }

    @Test func `I8: eviction removes empty buckets`() throws {
        try tree.withStore(tree.configuration(quota: 100 * entryAlone)) { store in
            let full = try store.commitLogin(carol, .plain)
            let empty = try store.commitLogin(alice, .plain)
            for number in 0..<90 { try empty.put(imageKey("\(number)"), testImage(1)) }
            // The images are removed by hand: the ledger counts them, and the buckets stay.
            for path in tree.entries { unlink(path) }
            for number in 0..<45 { try full.put(imageKey("\(number)"), testImage(1)) }
            store.maintain()
            #expect(full.usage?.images == 45)
            #expect(store.usageTotal.bytes <= 100 * entryAlone)
        }
    }

    @Test func `F80, I8: an account has one share for all its uids, and a reload changes accounts`()
        throws
    {
        let isOneAccount = NIOLockedValueBox(false)
        let configuration = tree.configuration(quota: 90 * entryAlone)
        try tree.makeDirectories(configuration)
        let store = try DiskStore(
            configuration: configuration,
            accountOf: { uid in uid >= 100_000 && isOneAccount.withLockedValue { $0 } ? 1000 : uid }, pause: {},
            yield: {}, log: Logger(label: "test") { _ in SilentLog() })
        defer { store.shutdown() }
        let quiet = try store.commitLogin(carol, .plain)
        for number in 0..<40 { try quiet.put(imageKey("\(number)"), testImage(1)) }
        // As separate accounts, eight of them would leave ten images to the ninth.
        isOneAccount.withLockedValue { $0 = true }
        for uid in 0..<8 as Range<UInt32> {
            let generationStore = try store.commitLogin(Owner(uid: 100_000 + uid, user: alice.user), .plain)
            for number in 0..<20 { try generationStore.put(imageKey("\(number)"), testImage(2)) }
        }
        #expect(quiet.usage?.images == 40)
        #expect(store.usageTotal.bytes <= 90 * entryAlone)
        isOneAccount.withLockedValue { $0 = false }
        for uid in 0..<8 as Range<UInt32> {
            let generationStore = try #require(try store.load(Owner(uid: 100_000 + uid, user: alice.user)))
                .generationStore
            for number in 20..<40 { try generationStore.put(imageKey("\(number)"), testImage(2)) }
        }
        #expect(quiet.usage?.images ?? 40 < 40)
    }
}
