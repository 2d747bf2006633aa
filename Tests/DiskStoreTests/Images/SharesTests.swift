import CacheCore
import Foundation
import Glibc
import Logging
import NIOConcurrencyHelpers
import Testing

@testable import DiskStore

/// The store's quota as accounts share it, and what would switch it off.
@Suite struct SharesTests {
    private let tree: TestTree
    private let costs = DiskCosts(block: 4096, longest: 1 << 30)
    /// Bytes that a small picture takes, and its directory.
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

    @Test func `I8: a bucket goes with an image that the origin no longer has, and with one that was bad`() throws {
        try tree.withStore { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob"), picture(1))
            try generationStore.drop(imageKey("bob")) { true }
            #expect(generationStore.usage == Usage())
            #expect(try buckets() == 0)

            try generationStore.put(imageKey("bob"), picture(1))
            try #require(truncate(try #require(tree.entries.first), 100) == 0)
            #expect(try generationStore.bytes(imageKey("bob")) == nil)
            #expect(try buckets() == 0)
        }
    }

    @Test func `I8: a write that is not placed leaves no bucket, whatever kept it from its place`() throws {
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            #expect(try !generationStore.write(imageKey("bob"), picture(1), isCurrent: { false }, committed: {}))
            #expect(try buckets() == 0)
            for call in [SystemCall.write, .rename] {
                system.plan { made, _, _ in made == call ? .fail(EIO) : nil }
                #expect(throws: StoreError.self) { try generationStore.put(imageKey("bob"), picture(1)) }
                #expect(try buckets() == 0)
            }
            let once = Once()
            system.plan { call, _, _ in
                if call == .write, once.take() {
                    expectSuccess { _ = try generationStore.remove([OpaqueID("bob")]) }
                }
                return nil
            }
            #expect(try !generationStore.put(imageKey("bob"), picture(1)))
            #expect(!once.take())
            #expect(try buckets() == 0)
            #expect(generationStore.usage == Usage())
        }
    }

    @Test func `I8: who uses most and has nothing to give keeps nobody else from giving`() throws {
        try tree.withStore(tree.configuration(quota: 100 * entryAlone)) { store in
            let full = try store.commitLogin(alice, .plain)
            let emptied = try store.commitLogin(bob, .plain)
            for number in 0..<20 { try full.put(imageKey("\(number)"), picture(1)) }
            for number in 0..<70 { try emptied.put(imageKey("\(number)"), picture(1)) }
            // Its images go by hand; it is still thought to have them.
            for path in tree.entries where path.contains(try name(of: emptied)) { unlink(path) }
            for path in try directories(of: emptied) { rmdir(path) }
            for number in 20..<120 { try full.put(imageKey("\(number)"), picture(1)) }
            #expect(tree.entries.count < 50)
            #expect(store.usageTotal.bytes <= 100 * entryAlone)
        }
    }

    @Test func `I3, I8: a purge of a user does not wait until its PUT has made room among others' images`() throws {
        let system = FaultySystem()
        try tree.withStore(tree.configuration(quota: 40 * entryAlone), system: system) { store in
            let full = try store.commitLogin(carol, .plain)
            for number in 0..<30 { try full.put(imageKey("\(number)"), picture(1)) }
            let generationStore = try store.commitLogin(alice, .plain)
            let isClosed = DispatchSemaphore(value: 0)
            let didWait = NIOLockedValueBox<Bool?>(nil)
            system.plan { call, _, ofKind in
                // The first of the others' images is about to go.
                guard call == .unlink, ofKind == 1 else { return nil }
                Thread.detachNewThread {
                    generationStore.close()
                    isClosed.signal()
                }
                // So long only where it does wait.
                let isDone = isClosed.wait(timeout: .now() + 20) == .success
                didWait.withLockedValue { $0 = !isDone }
                return nil
            }
            #expect(try generationStore.put(imageKey("bob"), picture(2, count: 150_000)))
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

    @Test func `I8: buckets that are empty are evicted`() throws {
        try tree.withStore(tree.configuration(quota: 100 * entryAlone)) { store in
            let full = try store.commitLogin(carol, .plain)
            let empty = try store.commitLogin(alice, .plain)
            for number in 0..<90 { try empty.put(imageKey("\(number)"), picture(1)) }
            // By hand; it is still thought to have them, and its directories are there.
            for path in tree.entries { unlink(path) }
            for number in 0..<45 { try full.put(imageKey("\(number)"), picture(1)) }
            store.maintain()
            #expect(full.usage?.images == 45)
            #expect(store.usageTotal.bytes <= 100 * entryAlone)
        }
    }

    @Test func `F80, I8: an account has one share of the quota for all its uids, and a reload changes whose they are`()
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
        for number in 0..<40 { try quiet.put(imageKey("\(number)"), picture(1)) }
        // As accounts of their own eight leave the ninth ten images.
        isOneAccount.withLockedValue { $0 = true }
        for uid in 0..<8 as Range<UInt32> {
            let generationStore = try store.commitLogin(Owner(uid: 100_000 + uid, user: alice.user), .plain)
            for number in 0..<20 { try generationStore.put(imageKey("\(number)"), picture(2)) }
        }
        #expect(quiet.usage?.images == 40)
        #expect(store.usageTotal.bytes <= 90 * entryAlone)
        isOneAccount.withLockedValue { $0 = false }
        for uid in 0..<8 as Range<UInt32> {
            let generationStore = try #require(try store.load(Owner(uid: 100_000 + uid, user: alice.user)))
                .generationStore
            for number in 20..<40 { try generationStore.put(imageKey("\(number)"), picture(2)) }
        }
        #expect(quiet.usage?.images ?? 40 < 40)
    }
}
