import CacheCore
import Glibc
import Testing

@testable import DiskStore

/// Files of images that could not be removed, and what is remembered of them.
@Suite struct LeftOverTests {
    private let tree: TestTree
    private let system = FaultySystem()

    init() throws {
        tree = try TestTree()
    }

    /// Everything that may hold an image, wherever it lies.
    private var images: [String] { tree.files(under: tree.cache + "/users") + tree.files(under: tree.cache + "/trash") }

    private func failUnlinks() {
        system.plan { call, _, _ in call == .unlink ? .fail(EIO) : nil }
    }

    @Test func `I8, I9: writes on a read-only disk leave nothing in memory`() throws {
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob"), picture(1))
            system.setReadOnly()
            for _ in 0..<20 {
                #expect(throws: StoreError.self) { try generationStore.put(imageKey("bob"), picture(2)) }
            }
            #expect(store.images.underWay.count == 0)
            #expect(try generationStore.bytes(imageKey("bob")) == picture(1).content)
        }
    }

    @Test func `I8: a temporary file that cannot be removed goes before the next image is written`() throws {
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob"), picture(1))
            failUnlinks()
            // The older image, swapped out, stays. Nothing is written beside it.
            try generationStore.put(imageKey("bob"), picture(2))
            for number in 0..<20 {
                #expect(throws: StoreError.self) { try generationStore.put(imageKey("\(number)"), picture(3)) }
            }
            #expect(tree.temporaries.count == 1)
            #expect(store.images.underWay.count == 1)
            system.heal()
            try generationStore.put(imageKey("eve"), picture(4))
            #expect(tree.temporaries.isEmpty)
            #expect(store.images.underWay.count == 0)
        }
    }

    @Test func `I8: a temporary file that could not be removed goes with maintenance, also where nobody writes again`()
        throws
    {
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob"), picture(1))
            failUnlinks()
            try generationStore.put(imageKey("bob"), picture(2))
            #expect(tree.temporaries.count == 1)
            system.heal()
            store.maintain()
            #expect(tree.temporaries.isEmpty)
            #expect(try generationStore.bytes(imageKey("bob")) == picture(2).content)
        }
    }

    @Test func `I8: with its generation what is remembered of a temporary file goes`() throws {
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob"), picture(1))
            failUnlinks()
            try generationStore.put(imageKey("bob"), picture(2))
            system.heal()
            generationStore.close()
            try store.commitLogout(alice)
            generationStore.discard()
            #expect(store.images.underWay.count == 0)
        }
    }

    @Test func `I3, F78: an image that was swapped out and cannot be unlinked goes before its profile's receipt`()
        throws
    {
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob"), picture(1))
            failUnlinks()
            try generationStore.put(imageKey("bob"), picture(2))
            #expect(throws: StoreError.self) { _ = try generationStore.remove([OpaqueID("bob")]) }
            system.heal()
            _ = try generationStore.remove([OpaqueID("bob")])
            #expect(images == [])
        }
    }

    @Test func `I3, F1: what a run before left swapped out goes before its profile's receipt, also after a sweep`()
        throws
    {
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob"), picture(0))
            system.plan { call, _, _ in call == .exchange ? .dieAfter : nil }
            #expect(throws: (any Error).self) { try generationStore.put(imageKey("bob"), picture(1)) }
        }
        let later = FaultySystem()
        later.plan { call, _, _ in call == .unlink ? .fail(EIO) : nil }
        try tree.withStore(system: later) { store in
            store.maintain()
            // Counted it is all the same.
            #expect(store.isCounted)
            later.heal()
            let generationStore = try #require(try store.load(alice)).generationStore
            _ = try generationStore.remove([OpaqueID("bob")])
            #expect(images == [])
        }
    }

    @Test func `what a run before left goes with a later sweep, when the first could not remove it`() throws {
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob"), picture(0))
            system.plan { call, _, _ in call == .exchange ? .dieAfter : nil }
            #expect(throws: (any Error).self) { try generationStore.put(imageKey("bob"), picture(1)) }
        }
        let later = FaultySystem()
        later.plan { call, _, _ in call == .unlink ? .fail(EIO) : nil }
        try tree.withStore(system: later) { store in
            store.maintain()
            #expect(tree.temporaries.count == 1)
            later.heal()
            store.maintain()
            #expect(tree.temporaries.isEmpty)
        }
    }

    @Test func `I3: an image that no quota lets in any more goes before its profile's receipt`() throws {
        try tree.withStore { try $0.commitLogin(alice, .plain).put(imageKey("bob"), picture(0, count: 20_000)) }
        failUnlinks()
        try tree.withStore(tree.configuration(userQuota: 10_000), system: system) { store in
            store.maintain()
            system.heal()
            let generationStore = try #require(try store.load(alice)).generationStore
            _ = try generationStore.remove([OpaqueID("bob")])
            #expect(images == [])
        }
    }
}
