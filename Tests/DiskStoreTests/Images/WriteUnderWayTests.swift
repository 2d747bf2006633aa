import CacheCore
import DiskStore
import Glibc
import NIOConcurrencyHelpers
import Testing

/// A purge of a profile while an image of it is on its way to the disk (F78).
@Suite struct WriteUnderWayTests {
    private static func size(_ path: String) -> Int {
        var status = stat()
        return lstat(path, &status) == 0 ? Int(status.st_size) : 0
    }

    /// Which call of the write the purge comes before: one that makes the file, one that fills it, one that has filled
    /// it in part.
    enum Moment: CaseIterable {
        case beforeTheFile, beforeTheBytes, betweenTheBytes
    }

    /// Also where the writer has not heard of the purge: what the purge has taken away does not come back.
    @Test(arguments: Moment.allCases, [false, true])
    func `F78: behind the receipt of a profile's purge no file holds an image that was on its way`(
        moment: Moment, isUnheard: Bool
    ) throws {
        let tree = try TestTree()
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            for name in ["bob", "eve"] { try generationStore.put(imageKey(name), picture(1)) }
            let isPurged = NIOLockedValueBox(false)
            let left = NIOLockedValueBox(0)
            let opens = NIOLockedValueBox(0)
            let once = Once()
            system.plan { call, _, ofKind in
                if isPurged.withLockedValue({ $0 }) {
                    // From the receipt on, at every moment.
                    left.withLockedValue { $0 += tree.temporaries.map(Self.size).reduce(0, +) }
                    return nil
                }
                if call == .open { opens.withLockedValue { $0 += 1 } }
                let isNow =
                    switch moment {
                    case .beforeTheFile: call == .open
                    case .beforeTheBytes: call == .write
                    case .betweenTheBytes: call == .write && ofKind == 2
                    }
                if isNow, once.take() {
                    expectSuccess { _ = try generationStore.remove([OpaqueID("bob")]) }
                    isPurged.withLockedValue { $0 = true }
                    left.withLockedValue { $0 += tree.temporaries.map(Self.size).reduce(0, +) }
                    return nil
                }
                return call == .write ? .short : nil
            }
            let isPlaced = try generationStore.write(
                imageKey("bob"), picture(2), isCurrent: { isUnheard || !isPurged.withLockedValue { $0 } }, committed: {}
            )
            system.heal()
            #expect(!once.take())
            #expect(!isPlaced)
            #expect(left.withLockedValue { $0 } == 0)
            #expect(tree.temporaries.isEmpty)
            #expect(try generationStore.bytes(imageKey("bob")) == nil)
            // Others' go on.
            #expect(try generationStore.bytes(imageKey("eve")) == picture(1).content)
            try generationStore.put(imageKey("bob"), picture(3))
            #expect(try generationStore.bytes(imageKey("bob")) == picture(3).content)
        }
    }

    @Test func `F78: an image of another profile that is on its way arrives`() throws {
        let tree = try TestTree()
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            let once = Once()
            system.plan { call, _, _ in
                if call == .write, once.take() {
                    expectSuccess { _ = try generationStore.remove([OpaqueID("eve")]) }
                }
                return nil
            }
            try generationStore.put(imageKey("bob"), picture(2))
            #expect(!once.take())
            #expect(try generationStore.bytes(imageKey("bob")) == picture(2).content)
        }
    }

    @Test func `F78: what a swap left and could not be removed, goes before the profile's receipt or there is none`()
        throws
    {
        let tree = try TestTree()
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob"), picture(1))
            // The older image, swapped out, cannot be unlinked nor moved.
            system.plan { call, _, _ in [.unlink, .rename].contains(call) ? .fail(EIO) : nil }
            try generationStore.put(imageKey("bob"), picture(2))
            #expect(tree.temporaries.count == 1)
            #expect(throws: StoreError.self) { _ = try generationStore.remove([OpaqueID("bob")]) }
            system.heal()
            _ = try generationStore.remove([OpaqueID("bob")])
            #expect(tree.entries.isEmpty)
            #expect(tree.temporaries.isEmpty)
        }
    }
}
