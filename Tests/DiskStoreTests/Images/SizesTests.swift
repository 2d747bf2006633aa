import CacheCore
import DiskStore
import Foundation
import LinuxSupport
import Testing

/// Listing of a profile's entries, which ``GenerationStore/trimRenditions(of:keeping:most:)`` uses.
@Suite struct SizesTests {
    @Test func `the listing has the entries of one profile, generation and user`() throws {
        let tree = try TestTree()
        try tree.withStore { store in
            let generationStore = try store.commitLogin(alice, .plain)
            #expect(try generationStore.imageKeys(of: OpaqueID("bob")) == [])
            for size in [0, 64, 4_096] as [UInt16] { try generationStore.put(imageKey("bob", size), testImage(1)) }
            for other in 0..<300 { try generationStore.put(imageKey("other \(other)", 7), testImage(2)) }
            #expect(Set(try generationStore.imageKeys(of: OpaqueID("bob")).map(\.size)) == [0, 64, 4_096])
            try generationStore.drop(imageKey("bob", 64)) { true }
            #expect(Set(try generationStore.imageKeys(of: OpaqueID("bob")).map(\.size)) == [0, 4_096])
            #expect(
                try store.commitLogin(Owner(uid: 7, user: OpaqueID("eve")), .plain).imageKeys(of: OpaqueID("bob")) == []
            )
            _ = try generationStore.remove([OpaqueID("bob")])
            #expect(try generationStore.imageKeys(of: OpaqueID("bob")) == [])
            #expect(try generationStore.imageKeys(of: OpaqueID("other 1")) == [imageKey("other 1", 7)])
            generationStore.close()
            #expect(throws: StoreError.closed) { try generationStore.imageKeys(of: OpaqueID("other 1")) }
        }
    }

    @Test func `I8: the listing reads a bounded number of names`() throws {
        let tree = try TestTree()
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob", 64), testImage(1))
            let entry = try #require(tree.entries.first)
            let bucket = URL(fileURLWithPath: entry).deletingLastPathComponent()
            for number in 0..<10_000 {
                let name = String(repeating: "x", count: 64) + ".\(number)"
                try #require(FileManager.default.createFile(atPath: bucket.path + "/" + name, contents: nil))
            }
            system.heal()
            _ = try generationStore.imageKeys(of: OpaqueID("bob"))
            // One call returns about 300 names.
            #expect((1...16).contains(system.count(of: .list)))
        }
    }

    @Test func `I9: a bucket that cannot be listed is an error, not an empty bucket`() throws {
        let tree = try TestTree()
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob", 64), testImage(1))
            for code in [EIO, EMFILE] {
                system.plan { call, _, _ in call == .list ? .fail(code) : nil }
                #expect(throws: SystemError.self) { try generationStore.imageKeys(of: OpaqueID("bob")) }
            }
            system.heal()
            #expect(try generationStore.imageKeys(of: OpaqueID("bob")) == [imageKey("bob", 64)])
        }
    }
}
