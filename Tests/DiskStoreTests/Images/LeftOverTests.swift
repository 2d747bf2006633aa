import CacheCore
import Foundation
import Glibc
import Testing

@testable import DiskStore

/// Image files that could not be removed, and the memory used for them.
@Suite struct LeftOverTests {
    private let tree: TestTree
    private let system = FaultySystem()

    init() throws {
        tree = try TestTree()
    }

    /// Files that may contain images.
    private var images: [String] { tree.files(under: tree.cache + "/users") + tree.files(under: tree.cache + "/trash") }

    private func failUnlinks() {
        system.plan { call, _, _ in call == .unlink ? .fail(EIO) : nil }
    }

    /// Leaves a replaced image under a temporary name. Returns a system in which no file can be removed.
    private func killDuringSwap() throws -> FaultySystem {
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob"), testImage(0))
            system.plan { call, _, _ in call == .exchange ? .dieAfter : nil }
            #expect(throws: (any Error).self) { try generationStore.put(imageKey("bob"), testImage(1)) }
        }
        let later = FaultySystem()
        later.plan { call, _, _ in call == .unlink ? .fail(EIO) : nil }
        return later
    }

    @Test func `I8, I9: failed writes on a read-only disk leave nothing in memory`() throws {
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob"), testImage(1))
            system.setReadOnly()
            for _ in 0..<20 {
                #expect(throws: StoreError.self) { try generationStore.put(imageKey("bob"), testImage(2)) }
            }
            #expect(store.images.temporaryFiles.count == 0)
            #expect(try generationStore.bytes(imageKey("bob")) == testImage(1).content)
        }
    }

    @Test func `I8: a temporary file that could not be removed is removed before the next image is written`() throws {
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob"), testImage(1))
            failUnlinks()
            // The old image stays, and no new file is written.
            try generationStore.put(imageKey("bob"), testImage(2))
            for number in 0..<20 {
                #expect(throws: StoreError.self) { try generationStore.put(imageKey("\(number)"), testImage(3)) }
            }
            #expect(tree.temporaries.count == 1)
            #expect(store.images.temporaryFiles.count == 1)
            system.heal()
            try generationStore.put(imageKey("eve"), testImage(4))
            #expect(tree.temporaries.isEmpty)
            #expect(store.images.temporaryFiles.count == 0)
        }
    }

    @Test func `I8: maintenance removes a temporary file that could not be removed`()
        throws
    {
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob"), testImage(1))
            failUnlinks()
            try generationStore.put(imageKey("bob"), testImage(2))
            #expect(tree.temporaries.count == 1)
            system.heal()
            store.maintain()
            #expect(tree.temporaries.isEmpty)
            #expect(try generationStore.bytes(imageKey("bob")) == testImage(2).content)
        }
    }

    @Test func `I8: discarding a generation frees the memory for its temporary files`() throws {
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob"), testImage(1))
            failUnlinks()
            try generationStore.put(imageKey("bob"), testImage(2))
            system.heal()
            generationStore.close()
            try store.commitLogout(alice)
            generationStore.discard()
            #expect(store.images.temporaryFiles.count == 0)
        }
    }

    @Test func `I3, F78: a replaced image that could not be unlinked is removed before the receipt for its profile`()
        throws
    {
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob"), testImage(1))
            failUnlinks()
            try generationStore.put(imageKey("bob"), testImage(2))
            #expect(throws: StoreError.self) { _ = try generationStore.remove([OpaqueID("bob")]) }
            system.heal()
            _ = try generationStore.remove([OpaqueID("bob")])
            #expect(images == [])
        }
    }

    /// With `isEarly`, the purge precedes the first maintenance.
    @Test(arguments: [false, true])
    func `I3, F1: an image replaced in an earlier run is removed before the receipt for its profile`(
        isEarly: Bool
    ) throws {
        let later = try killDuringSwap()
        try tree.withStore(system: later) { store in
            if !isEarly {
                store.maintain()
                // Counting works nevertheless.
                #expect(store.isCounted)
                #expect(store.images.temporaryFiles.count == 1)
            }
            later.heal()
            let generationStore = try #require(try store.load(alice)).generationStore
            _ = try generationStore.remove([OpaqueID("bob")])
            #expect(images == [])
            #expect(store.images.temporaryFiles.count == 0)
        }
    }

    @Test func `a file of an earlier run that cannot be removed does not prevent writes`() throws {
        let later = try killDuringSwap()
        try tree.withStore(system: later) { store in
            store.maintain()
            #expect(store.images.temporaryFiles.count == 1)
            let generationStore = try #require(try store.load(alice)).generationStore
            try generationStore.put(imageKey("eve"), testImage(2))
            #expect(try generationStore.bytes(imageKey("eve")) == testImage(2).content)
        }
    }

    @Test func `maintenance removes foreign files from the directory of a generation that it could not remove before`()
        throws
    {
        try tree.withStore { try $0.commitLogin(alice, .plain).put(imageKey("bob"), testImage(0)) }
        let bucket = URL(fileURLWithPath: try #require(tree.entries.first)).deletingLastPathComponent()
        let foreign = bucket.deletingLastPathComponent().path + "/tmp.0123456789abcdef.1"
        #expect(FileManager.default.createFile(atPath: foreign, contents: nil))
        system.plan { call, _, _ in call == .unlink ? .fail(EIO) : nil }
        try tree.withStore(system: system) { store in
            store.maintain()
            #expect(store.isCounted && tree.temporaries.count == 1)
            system.heal()
            store.maintain()
            #expect(tree.temporaries.isEmpty)
        }
    }

    @Test func `a later sweep removes temporary files that the first one could not remove`() throws {
        let later = try killDuringSwap()
        try tree.withStore(system: later) { store in
            store.maintain()
            #expect(tree.temporaries.count == 1)
            later.heal()
            store.maintain()
            #expect(tree.temporaries.isEmpty)
        }
    }

    @Test func `I3: an image over a lowered quota is removed before the receipt for its profile`() throws {
        try tree.withStore { try $0.commitLogin(alice, .plain).put(imageKey("bob"), testImage(0, count: 20_000)) }
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
