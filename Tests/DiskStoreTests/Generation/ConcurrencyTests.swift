import CacheCore
import DiskStore
import Foundation
import NIOConcurrencyHelpers
import Synchronization
import Testing

/// Returns false if the generation store is closed. Other errors are failures.
private func whileOpen(_ body: () throws -> Void) throws -> Bool {
    do {
        try body()
        return true
    } catch StoreError.closed {
        return false
    }
}

@Test func `F41, F42, F56: concurrent reads, writes, removals, purges and maintenance serve no wrong byte`() throws {
    let tree = try TestTree()
    let entry = 1124
    try tree.withStore(tree.configuration(quota: 60 * entry, userQuota: 40 * entry)) { store in
        try store.start()
        let current = NIOLockedValueBox(try store.commitLogin(alice, .plain))
        let epoch = Atomic<Int>(0)
        let isDone = Atomic<Bool>(false)
        /// Images contain the epoch in which they were written.
        let workers: [@Sendable () throws -> Void] = (0..<4).map { worker in
            {
                var number = worker
                while !isDone.load(ordering: .relaxed) {
                    number += 1
                    let (generationStore, now) = current.withLockedValue { ($0, epoch.load(ordering: .relaxed)) }
                    _ = try whileOpen {
                        let imageKey = imageKey("\(number % 60)")
                        try generationStore.put(imageKey, testImage(UInt8(now)))
                        if let found = try generationStore.bytes(imageKey) {
                            #expect(found == testImage(UInt8(now)).content)
                        }
                        if number % 7 == 0 {
                            _ = try generationStore.remove([OpaqueID("\(number % 60)")])
                        }
                    }
                }
            }
        }
        let purger: @Sendable () throws -> Void = {
            for round in 1...40 {
                let old = current.withLockedValue { $0 }
                old.close()
                let new = try store.commitPurge(alice)
                current.withLockedValue { current in
                    current = new
                    epoch.store(round, ordering: .relaxed)
                }
                old.discard()
                usleep(500)
            }
            isDone.store(true, ordering: .relaxed)
        }
        try atOnce(workers + [purger])
        let generationStore = current.withLockedValue { $0 }
        store.maintain()
        #expect(generationStore.usage?.images == tree.entries.count)
        #expect(store.usageTotal.images == tree.entries.count)
        #expect(store.counters[.rejectedEntries] == 0)
        #expect(store.counters[.failedReads] == 0)
        #expect(tree.temporaries.isEmpty)
    }
}

@Test func `F56: closing waits for a write in progress and rejects later ones`() throws {
    let tree = try TestTree()
    try tree.withStore { store in
        let generationStore = try store.commitLogin(alice, .plain)
        let isInside = DispatchSemaphore(value: 0)
        let mayContinue = DispatchSemaphore(value: 0)
        let order = NIOLockedValueBox<[String]>([])
        try atOnce([
            {
                _ = try generationStore.write(imageKey("bob"), testImage(1)) {
                    true
                } committed: {
                    isInside.signal()
                    mayContinue.wait()
                    order.withLockedValue { $0.append("written") }
                }
            },
            {
                isInside.wait()
                try atOnce([
                    {
                        generationStore.close()
                        order.withLockedValue { $0.append("closed") }
                    },
                    {
                        // The gate closes at some point while the write is held inside.
                        while try whileOpen({ _ = try generationStore.bytes(imageKey("eve")) }) {}
                        mayContinue.signal()
                    },
                ])
            },
        ])
        #expect(order.withLockedValue { $0 } == ["written", "closed"])
        generationStore.close()
    }
}

@Test func `I3: a write that began before a removal does not appear after it`() throws {
    let tree = try TestTree()
    try tree.withStore { store in
        let generationStore = try store.commitLogin(alice, .plain)
        let fenced = Atomic<Int>(0)
        try atOnce(
            (0..<4).map { worker in
                {
                    for round in 0..<200 {
                        let seen = fenced.load(ordering: .acquiring)
                        _ = try generationStore.write(
                            imageKey("bob", UInt16(worker)), testImage(UInt8(truncatingIfNeeded: round)),
                            isCurrent: { fenced.load(ordering: .acquiring) == seen }, committed: {})
                    }
                }
            } + [
                {
                    for _ in 0..<50 {
                        _ = try generationStore.remove([OpaqueID("bob")]) { _ in
                            fenced.add(1, ordering: .acquiringAndReleasing)
                        }
                    }
                }
            ])
        #expect(generationStore.usage?.images == tree.entries.count)
        _ = try generationStore.remove([OpaqueID("bob")]) { _ in fenced.add(1, ordering: .acquiringAndReleasing) }
        #expect(tree.entries.isEmpty)
    }
}

@Test func `the maintenance thread does pending work and ends at the stop`() throws {
    let tree = try TestTree()
    try tree.withStore { store in
        try store.start()
        let generationStore = try store.commitLogin(alice, .plain)
        for number in 0..<200 { try generationStore.put(imageKey("\(number)"), testImage(1)) }
        generationStore.close()
        try store.commitLogout(alice)
        generationStore.discard()
        // Completes the work if the thread ended before it did.
        store.shutdown()
    }
    try tree.withStore { store in
        store.maintain()
        #expect(tree.files(under: tree.cache + "/trash").isEmpty)
    }
}

@Test func `several users of a new uid can log in concurrently`() throws {
    let tree = try TestTree()
    try tree.withStore { store in
        for uid in 2_000..<2_060 as Range<UInt32> {
            try atOnce(
                (0..<4).map { number in
                    {
                        let owner = Owner(uid: uid, user: OpaqueID("user \(number)"))
                        _ = try store.commitLogin(owner, .plain)
                    }
                })
            #expect(try store.countUsers(of: uid) == 4)
        }
    }
}

@Test func `F41, I3, I7: reads during writes and removals return no removed image and leave no descriptor open`()
    throws
{
    let tree = try TestTree()
    let system = FaultySystem()
    try tree.withStore(system: system) { store in
        let descriptors = system.descriptors
        let generationStore = try store.commitLogin(alice, .plain)
        try generationStore.put(imageKey("0"), testImage(0))
        let writing = Atomic<Int>(2)
        @Sendable func readCached(_ number: Int) -> [UInt8]? {
            generationStore.readCached(imageKey("\(number)"), framing: .bare).image.map(\.content)
        }
        // Each writer has images of its own, so it knows which must exist.
        let writers: [@Sendable () throws -> Void] = (0..<2).map { writer in
            {
                defer { writing.subtract(1, ordering: .relaxed) }
                for round in 0..<400 {
                    let number = writer * 4 + round % 4
                    try generationStore.put(imageKey("\(number)"), testImage(UInt8(round & 0xFF)))
                    for _ in 0..<3 { #expect(readCached(number) == testImage(UInt8(round & 0xFF)).content) }
                    guard round % 3 == 0 else { continue }
                    _ = try generationStore.remove([OpaqueID("\(number)")])
                    for _ in 0..<2 { #expect(readCached(number) == nil) }
                }
            }
        }
        let readers: [@Sendable () throws -> Void] = (0..<2).map { reader in
            {
                var number = reader
                while writing.load(ordering: .relaxed) > 0 {
                    number += 1
                    _ = readCached(number % 8)
                }
            }
        }
        try atOnce(writers + readers)
        generationStore.close()
        // Discarding closes its directories.
        generationStore.discard()
        #expect(system.descriptors == descriptors)
        #expect(store.counters[.rejectedEntries] == 0)
    }
}
