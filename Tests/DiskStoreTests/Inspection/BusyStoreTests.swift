import CacheCore
import DiskStore
import Foundation
import NIOConcurrencyHelpers
import Synchronization
import Testing

/// An inspection during the operation of a daemon.
@Test func `F41: an inspection of a store that a daemon is using has no findings`() throws {
    let tree = try TestTree()
    try tree.withStore { store in
        try store.start()
        let isDone = Atomic<Bool>(false)
        /// Number of logouts per user. After a complete round, nothing from before it is in progress.
        let rounds = NIOLockedValueBox([0, 0, 0])
        let owners = [alice, bob, carol]
        let workers: [@Sendable () throws -> Void] = owners.indices.map { index in
            {
                let owner = owners[index]
                while !isDone.load(ordering: .acquiring) {
                    var generationStore = try store.commitLogin(owner, .plain)
                    for number in 0..<6 {
                        try generationStore.put(imageKey("\(number)", 64), testImage(UInt8(number), count: 20_000))
                    }
                    try generationStore.remove([OpaqueID("1")])
                    generationStore.close()
                    let renewed = try store.commitPurge(owner)
                    generationStore.discard()
                    generationStore = renewed
                    try store.commitSessions(owner, .plain)
                    for number in 0..<6 {
                        try generationStore.put(imageKey("\(number % 2)", 64), testImage(UInt8(number)))
                    }
                    generationStore.close()
                    try store.commitLogout(owner)
                    generationStore.discard()
                    rounds.withLockedValue { $0[index] += 1 }
                }
            }
        }
        let inspector: @Sendable () throws -> Void = {
            defer { isDone.store(true, ordering: .releasing) }
            // Every user makes progress between two scans: two rounds, so that one began after the first scan.
            let inspection = try tree.inspection { _ in
                let due = rounds.withLockedValue { $0.map { $0 + 2 } }
                while rounds.withLockedValue({ zip($0, due).contains { $0 < $1 } }) { sched_yield() }
            }
            for _ in 0..<60 {
                let report = inspection.report()
                #expect(report.problems(in: tree) == [])
                #expect(report.unread == [])
                #expect(report.users <= 3)
            }
        }
        try atOnce(workers + [inspector])
    }
    #expect(try tree.inspection().report().findings == [])
}
