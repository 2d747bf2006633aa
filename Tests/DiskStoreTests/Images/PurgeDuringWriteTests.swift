import CacheCore
import DiskStore
import Glibc
import NIOConcurrencyHelpers
import Testing

/// A purge of a profile while one of its images is being written (F78).
@Suite struct PurgeDuringWriteTests {
    private static func size(_ path: String) -> Int {
        var status = stat()
        return lstat(path, &status) == 0 ? Int(status.st_size) : 0
    }

    /// The call before which the purge happens: the one that fills the file, or one after a partial write.
    enum Moment: CaseIterable {
        case beforeTheBytes, betweenTheBytes
    }

    /// With `ignoresPurge`, the writer does not notice the purge; even then removed files must not return.
    @Test(arguments: Moment.allCases, [false, true])
    func `F78: after the receipt for a profile no file contains an image of it that was being written`(
        moment: Moment, ignoresPurge: Bool
    ) throws {
        let tree = try TestTree()
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            for name in ["bob", "eve"] { try generationStore.put(imageKey(name), testImage(1)) }
            let isPurged = NIOLockedValueBox(false)
            let left = NIOLockedValueBox(0)
            let once = Once()
            system.plan { call, _, ofKind in
                if isPurged.withLockedValue({ $0 }) {
                    // Sizes at every call after the receipt.
                    left.withLockedValue { $0 += tree.temporaries.map(Self.size).reduce(0, +) }
                    return nil
                }
                let isMoment =
                    switch moment {
                    case .beforeTheBytes: call == .write
                    case .betweenTheBytes: call == .write && ofKind == 2
                    }
                if isMoment, once.isFirst() {
                    expectSuccess { _ = try generationStore.remove([OpaqueID("bob")]) }
                    isPurged.withLockedValue { $0 = true }
                    left.withLockedValue { $0 += tree.temporaries.map(Self.size).reduce(0, +) }
                    return nil
                }
                return call == .write ? .short : nil
            }
            let isCommitted = try generationStore.write(
                imageKey("bob"), testImage(2), isCurrent: { ignoresPurge || !isPurged.withLockedValue { $0 } },
                committed: {}
            )
            system.heal()
            #expect(!once.isFirst())
            #expect(!isCommitted)
            #expect(left.withLockedValue { $0 } == 0)
            #expect(tree.temporaries.isEmpty)
            #expect(try generationStore.bytes(imageKey("bob")) == nil)
            // Writes of other profiles continue.
            #expect(try generationStore.bytes(imageKey("eve")) == testImage(1).content)
            try generationStore.put(imageKey("bob"), testImage(3))
            #expect(try generationStore.bytes(imageKey("bob")) == testImage(3).content)
        }
    }

    @Test func `F78: a write that begins after the receipt for its profile creates no file`() throws {
        let tree = try TestTree()
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            for name in ["bob", "eve"] { try generationStore.put(imageKey(name), testImage(1)) }
            _ = try generationStore.remove([OpaqueID("bob")])
            // A kill at any call would leave the files that exist then.
            let most = NIOLockedValueBox(0)
            system.plan { _, _, _ in
                most.withLockedValue { $0 = max($0, tree.temporaries.count) }
                return nil
            }
            let isCommitted = try generationStore.write(
                imageKey("bob"), testImage(2), isCurrent: { false }, committed: {})
            system.heal()
            #expect(!isCommitted)
            #expect(most.withLockedValue { $0 } == 0)
            #expect(tree.temporaries.isEmpty)
        }
    }

    @Test func `a count of the images keeps the file of an image that is being written`() throws {
        let tree = try TestTree()
        let system = FaultySystem()
        try tree.withStore { try $0.commitLogin(alice, .plain).put(imageKey("eve"), testImage(1)) }
        try tree.withStore(system: system) { store in
            let generationStore = try #require(try store.load(alice)).generationStore
            let once = Once()
            system.plan { call, _, _ in
                if call == .write, once.isFirst() { store.maintain() }
                return nil
            }
            try generationStore.put(imageKey("bob"), testImage(2))
            #expect(!once.isFirst() && store.isCounted)
            #expect(try generationStore.bytes(imageKey("bob")) == testImage(2).content)
        }
    }

    @Test func `F78: an image of another profile that is being written is committed`() throws {
        let tree = try TestTree()
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            let once = Once()
            system.plan { call, _, _ in
                if call == .write, once.isFirst() {
                    expectSuccess { _ = try generationStore.remove([OpaqueID("eve")]) }
                }
                return nil
            }
            try generationStore.put(imageKey("bob"), testImage(2))
            #expect(!once.isFirst())
            #expect(try generationStore.bytes(imageKey("bob")) == testImage(2).content)
        }
    }

    @Test func `F78: a replaced image that cannot be removed prevents the receipt for its profile`()
        throws
    {
        let tree = try TestTree()
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob"), testImage(1))
            // The replaced image can be neither unlinked nor moved.
            system.plan { call, _, _ in [.unlink, .rename].contains(call) ? .fail(EIO) : nil }
            try generationStore.put(imageKey("bob"), testImage(2))
            #expect(tree.temporaries.count == 1)
            #expect(throws: StoreError.self) { _ = try generationStore.remove([OpaqueID("bob")]) }
            system.heal()
            _ = try generationStore.remove([OpaqueID("bob")])
            #expect(tree.entries.isEmpty)
            #expect(tree.temporaries.isEmpty)
        }
    }
}
