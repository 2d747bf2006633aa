import CacheCore
import DiskStore
import Foundation
import Testing

/// The sizes in which there are images of a profile, as the bucket that they lie in tells.
@Suite struct SizesTests {
    @Test func `they are those of that profile, generation and user, as they come and go`() throws {
        let tree = try TestTree()
        try tree.withStore { store in
            let generationStore = try store.commitLogin(alice, .plain)
            #expect(try generationStore.imageKeys(of: OpaqueID("bob")) == [])
            for size in [0, 64, 4_096] as [UInt16] { try generationStore.put(imageKey("bob", size), picture(1)) }
            for other in 0..<300 { try generationStore.put(imageKey("other \(other)", 7), picture(2)) }
            #expect(try generationStore.imageKeys(of: OpaqueID("bob")).map { Set($0.map(\.size)) } == [0, 64, 4_096])
            try generationStore.drop(imageKey("bob", 64)) { true }
            #expect(try generationStore.imageKeys(of: OpaqueID("bob")).map { Set($0.map(\.size)) } == [0, 4_096])
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

    @Test func `I8: of a bucket with very many names some are looked at`() throws {
        let tree = try TestTree()
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob", 64), picture(1))
            let entry = try #require(tree.entries.first)
            let bucket = URL(fileURLWithPath: entry).deletingLastPathComponent()
            for number in 0..<10_000 {
                let name = String(repeating: "x", count: 64) + ".\(number)"
                try #require(FileManager.default.createFile(atPath: bucket.path + "/" + name, contents: nil))
            }
            system.heal()
            _ = try generationStore.imageKeys(of: OpaqueID("bob"))
            // A call gives some 300 names.
            #expect((1...16).contains(system.count(of: .list)))
        }
    }

    @Test func `I9: of a bucket that cannot be listed nothing is said`() throws {
        let tree = try TestTree()
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob", 64), picture(1))
            for code in [EIO, EMFILE] {
                system.plan { call, _, _ in call == .list ? .fail(code) : nil }
                #expect(try generationStore.imageKeys(of: OpaqueID("bob")) == nil)
            }
            system.heal()
            #expect(try generationStore.imageKeys(of: OpaqueID("bob")) == [imageKey("bob", 64)])
        }
    }
}
