import CacheCore
import Dispatch
import Foundation
import NIOConcurrencyHelpers
import Testing

@testable import DiskStore

/// Background work yields between any two steps, without holding a lock.
@Suite(.timeLimit(.minutes(5))) struct BackgroundYieldTests {
    /// Purges a user, which moves its images to the trash.
    private func purge(
        _ images: Int, of owner: Owner, in store: DiskStore, each image: Image = testImage(1)
    ) throws -> any GenerationStore {
        let generationStore = try store.commitLogin(owner, .plain)
        for number in 0..<images { try generationStore.put(imageKey("\(number)"), image) }
        generationStore.close()
        let renewed = try store.commitPurge(owner)
        generationStore.discard()
        return renewed
    }

    @Test func `deletion of a purged generation yields after each name`() throws {
        let tree = try TestTree()
        let left = NIOLockedValueBox<Set<Int>>([])
        let onYield = NIOLockedValueBox<@Sendable () -> Void>({})
        tree.yield.withLockedValue { $0 = { onYield.withLockedValue { $0 }() } }
        try tree.withStore { store in
            _ = try purge(100, of: alice, in: store)
            onYield.withLockedValue { $0 = { left.withLockedValue { _ = $0.insert(store.trashUsage.images) } } }
            store.maintain()
            onYield.withLockedValue { $0 = {} }
            #expect(left.withLockedValue { $0.isSuperset(of: 1..<100) })
            #expect(tree.files(under: tree.cache + "/trash").isEmpty)
        }
    }

    @Test func `PUT, GET, LOGIN, LOGOUT and PURGE work while the deleting thread yields`() throws {
        let tree = try TestTree()
        let serve = NIOLockedValueBox<@Sendable () throws -> Void>({})
        let served = NIOLockedValueBox<[Result<Void, any Error>]>([])
        tree.yield.withLockedValue {
            $0 = {
                let result = Result { try serve.withLockedValue { $0 }() }
                served.withLockedValue { $0.append(result) }
            }
        }
        try tree.withStore { store in
            _ = try purge(20, of: alice, in: store)
            // On the deleting thread: a lock that it still held would never be released. Only some times, because this
            // creates new trash.
            let turns = NIOLockedValueBox(0)
            serve.withLockedValue {
                $0 = {
                    let turn = turns.withLockedValue { turns in
                        turns += 1
                        return turns
                    }
                    guard turn % 10 == 1 else { return }
                    let generationStore = try store.commitLogin(bob, .plain)
                    try generationStore.put(imageKey("eve"), testImage(2))
                    #expect(try generationStore.bytes(imageKey("eve")) == testImage(2).content)
                    generationStore.close()
                    let renewed = try store.commitPurge(bob)
                    renewed.close()
                    try store.commitLogout(bob)
                    #expect(try store.load(bob) == nil)
                }
            }
            store.maintain()
            serve.withLockedValue { $0 = {} }
            let results = served.withLockedValue { $0 }
            #expect(results.count > 20)
            for result in results { try result.get() }
        }
    }

    @Test func `F4: a thread that waits for space gets the next turn at deleting`()
        throws
    {
        let tree = try TestTree()
        // Larger than the directories of forty images, whose number varies and which count, too.
        let image = testImage(1, count: 300_000)
        let costs = DiskCosts(block: 4096, maximumEntry: 1 << 20)
        let full = 40 * (costs.file(Int64(image.content.count + 124)) + costs.directory)
        let hasYielded = DispatchSemaphore(value: 0)
        let mayContinue = DispatchSemaphore(value: 0)
        let first = Once()
        let yieldedWhileAwaited = NIOLockedValueBox(false)
        let onYield = NIOLockedValueBox<@Sendable () -> Void>({})
        tree.yield.withLockedValue { $0 = { onYield.withLockedValue { $0 }() } }
        try tree.withStore(tree.configuration(quota: full)) { store in
            // After the sweep, only the trash yields.
            store.maintain()
            let renewed = try purge(30, of: alice, in: store, each: image)
            for number in 0..<10 { try renewed.put(imageKey("\(number)"), image) }
            onYield.withLockedValue {
                $0 = {
                    if store.images.trash.isAwaited { yieldedWhileAwaited.withLockedValue { $0 = true } }
                    guard first.isFirst() else { return }
                    hasYielded.signal()
                    mayContinue.wait()
                }
            }
            let both = DispatchGroup()
            both.enter()
            Thread.detachNewThread {
                store.maintain()
                both.leave()
            }
            hasYielded.wait()
            let failure = NIOLockedValueBox<(any Error)?>(nil)
            both.enter()
            Thread.detachNewThread {
                // The store is full, so this image waits for space in the trash.
                do { try renewed.put(imageKey("one more"), image) } catch { failure.withLockedValue { $0 = error } }
                both.leave()
            }
            try eventually { store.images.trash.isAwaited }
            mayContinue.signal()
            both.wait()
            if let failure = failure.withLockedValue({ $0 }) { throw failure }
            #expect(!yieldedWhileAwaited.withLockedValue { $0 })
            #expect(store.trashUsage == Usage())
            #expect(store.usageTotal.images == 11)
        }
    }

    @Test func `discarding a generation closes its directories; a receipt does not wait for it`()
        throws
    {
        let tree = try TestTree()
        try tree.withStore { store in
            let generationStore = try #require(try store.commitLogin(alice, .plain) as? DiskGenerationStore)
            for number in 0..<50 { try generationStore.put(imageKey("\(number)"), testImage(1)) }
            let key = DirectoryCache.Key(generation: generationStore.generation.number, bucket: nil)
            generationStore.close()
            _ = try store.commitPurge(alice)
            #expect(store.images.disk.directories[key] != nil)
            generationStore.discard()
            #expect(store.images.disk.directories[key] == nil)
        }
    }

    @Test
    func `the initial delay of maintenance ignores wakes and ends at a stop`()
        throws
    {
        let tree = try TestTree()
        try tree.withStore { store in _ = try purge(5, of: alice, in: store) }
        #expect(!tree.files(under: tree.cache + "/trash").isEmpty)
        try tree.withStore { store in
            try store.start(after: 86_400)
            // Each of these wakes the thread.
            _ = try #require(try store.load(alice))
            _ = try purge(5, of: bob, in: store)
            store.shutdown()
            #expect(!tree.files(under: tree.cache + "/trash").isEmpty)
            #expect(!store.isCounted)
        }
        try tree.withStore { store in
            try store.start(after: 0)
            try eventually { tree.files(under: tree.cache + "/trash").isEmpty }
        }
    }

    @Test func `maintenance reports once that all images are counted`() throws {
        let tree = try TestTree()
        try tree.withStore { store in
            let reports = NIOLockedValueBox<[Bool]>([])
            try store.start(whenCounted: { reports.withLockedValue { $0.append(store.isCounted) } })
            try eventually { !reports.withLockedValue { $0.isEmpty } }
            // A later run.
            _ = try purge(5, of: alice, in: store)
            try eventually { tree.files(under: tree.cache + "/trash").isEmpty }
            store.shutdown()
            #expect(reports.withLockedValue { $0 } == [true])
        }
    }
}

/// Waits at most a minute until a condition on another thread holds.
private func eventually(_ condition: () throws -> Bool, sourceLocation: SourceLocation = #_sourceLocation) throws {
    for _ in 0..<60_000 {
        if try condition() { return }
        usleep(1_000)
    }
    Issue.record("the condition did not become true", sourceLocation: sourceLocation)
}
