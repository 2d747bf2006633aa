import CacheCore
import Dispatch
import Foundation
import NIOConcurrencyHelpers
import Testing

@testable import DiskStore

/// What happens in the background gives way to whoever is waited for: between any two of its steps, holding nothing.
@Suite(.timeLimit(.minutes(5))) struct BackgroundYieldTests {
    /// A user's images, given to the trash by a purge.
    private func purge(
        _ images: Int, of owner: Owner, in store: DiskStore, each image: Image = picture(1)
    ) throws -> any GenerationStore {
        let generationStore = try store.commitLogin(owner, .plain)
        for number in 0..<images { try generationStore.put(imageKey("\(number)"), image) }
        generationStore.close()
        let renewed = try store.commitPurge(owner)
        generationStore.discard()
        return renewed
    }

    @Test func `what a purge left is deleted with a yield after each name`() throws {
        let tree = try TestTree()
        let left = NIOLockedValueBox<Set<Int>>([])
        let look = NIOLockedValueBox<@Sendable () -> Void>({})
        tree.yield.withLockedValue { $0 = { look.withLockedValue { $0 }() } }
        try tree.withStore { store in
            _ = try purge(100, of: alice, in: store)
            look.withLockedValue { $0 = { left.withLockedValue { _ = $0.insert(store.trashUsage.images) } } }
            store.maintain()
            look.withLockedValue { $0 = {} }
            #expect(left.withLockedValue { $0.isSuperset(of: 1..<100) })
            #expect(tree.files(under: tree.cache + "/trash").isEmpty)
        }
    }

    @Test func `while the trash's thread stands aside, others put, read, log in, log out and purge`() throws {
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
            // On the thread that deletes: any lock of those below that it still held would never be given up. Not every
            // time, since that leaves new trash.
            let turns = NIOLockedValueBox(0)
            serve.withLockedValue {
                $0 = {
                    let turn = turns.withLockedValue { turns in
                        turns += 1
                        return turns
                    }
                    guard turn % 10 == 1 else { return }
                    let generationStore = try store.commitLogin(bob, .plain)
                    try generationStore.put(imageKey("eve"), picture(2))
                    #expect(try generationStore.bytes(imageKey("eve")) == picture(2).content)
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

    @Test func `F4: who needs the trash's room has the next turn, however long its thread is kept from the processor`()
        throws
    {
        let tree = try TestTree()
        // Larger than all the directories that forty may lie in, which count, too, and of which nobody knows how many
        // there are.
        let image = picture(1, count: 300_000)
        let costs = DiskCosts(block: 4096, longest: 1 << 20)
        let full = 40 * (costs.file(Int64(image.content.count + 124)) + costs.directory)
        let isAside = DispatchSemaphore(value: 0)
        let mayGoOn = DispatchSemaphore(value: 0)
        let first = Once()
        let stoodInTheWay = NIOLockedValueBox(false)
        let look = NIOLockedValueBox<@Sendable () -> Void>({})
        tree.yield.withLockedValue { $0 = { look.withLockedValue { $0 }() } }
        try tree.withStore(tree.configuration(quota: full)) { store in
            // The sweep is over: from here on only the trash is left to yield from.
            store.maintain()
            let renewed = try purge(30, of: alice, in: store, each: image)
            for number in 0..<10 { try renewed.put(imageKey("\(number)"), image) }
            look.withLockedValue {
                $0 = {
                    if store.images.trash.isAwaited { stoodInTheWay.withLockedValue { $0 = true } }
                    guard first.take() else { return }
                    isAside.signal()
                    mayGoOn.wait()
                }
            }
            let both = DispatchGroup()
            both.enter()
            Thread.detachNewThread {
                store.maintain()
                both.leave()
            }
            isAside.wait()
            let failure = NIOLockedValueBox<(any Error)?>(nil)
            both.enter()
            Thread.detachNewThread {
                // The store is full: this one image more has to wait for a turn at the trash.
                do { try renewed.put(imageKey("one more"), image) } catch { failure.withLockedValue { $0 = error } }
                both.leave()
            }
            try eventually { store.images.trash.isAwaited }
            mayGoOn.signal()
            both.wait()
            if let failure = failure.withLockedValue({ $0 }) { throw failure }
            #expect(!stoodInTheWay.withLockedValue { $0 })
            #expect(store.trashUsage == Usage())
            #expect(store.usageTotal.images == 11)
        }
    }

    @Test func `a receipt does not wait until a generation's directories are closed; they are when it is discarded`()
        throws
    {
        let tree = try TestTree()
        try tree.withStore { store in
            let generationStore = try #require(try store.commitLogin(alice, .plain) as? DiskGenerationStore)
            for number in 0..<50 { try generationStore.put(imageKey("\(number)"), picture(1)) }
            let key = DirectoryCache.Key(generation: generationStore.generation.number, bucket: nil)
            generationStore.close()
            _ = try store.commitPurge(alice)
            #expect(store.images.disk.directories[key] != nil)
            generationStore.discard()
            #expect(store.images.disk.directories[key] == nil)
        }
    }

    @Test
    func `a start leaves its first moments to those who serve, whatever wakes it, and a stop does not wait for them`()
        throws
    {
        let tree = try TestTree()
        try tree.withStore { store in _ = try purge(5, of: alice, in: store) }
        #expect(!tree.files(under: tree.cache + "/trash").isEmpty)
        try tree.withStore { store in
            try store.start(after: 86_400)
            // Each of the two wakes the thread.
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
}

/// Waits until something holds that happens on another thread; fails when a minute was not enough.
private func eventually(_ condition: () throws -> Bool, sourceLocation: SourceLocation = #_sourceLocation) throws {
    for _ in 0..<60_000 {
        if try condition() { return }
        usleep(1_000)
    }
    Issue.record("it did not come about", sourceLocation: sourceLocation)
}
