import CacheCore
import DiskStore
import Foundation
import Glibc
import NIOConcurrencyHelpers
import Testing

/// Directories of a uid exist only while one of its users is logged in (I2).
@Suite struct EmptyDirectoryTests {
    /// The existing directories of uids.
    private func directories(_ tree: TestTree) -> [String] {
        ["\(tree.cache)/users", "\(tree.state)/keys", "\(tree.state)/sessions"].flatMap { root in
            ["1000", "1001"].map { "\(root)/\($0)" }.filter { access($0, F_OK) == 0 }
        }
    }

    private func logOut(_ store: DiskStore, _ owner: Owner) throws {
        let generationStore = try #require(try store.load(owner)).generationStore
        generationStore.close()
        try store.commitLogout(owner)
        generationStore.discard()
    }

    @Test func `I2: the last logout of a uid removes its directories, others do not`() throws {
        let tree = try TestTree()
        try tree.withStore { store in
            for owner in [alice, bob, carol] { try store.commitLogin(owner, .plain).put(imageKey("bob"), testImage(1)) }
            try logOut(store, alice)
            #expect(directories(tree).count == 6)
            try logOut(store, carol)
            #expect(directories(tree).map { $0.suffix(5) } == ["/1000", "/1000", "/1000"])
            try logOut(store, bob)
            #expect(directories(tree) == [])
            // They are created again and are durable.
            try store.commitLogin(carol, .plain).put(imageKey("bob"), testImage(2))
            #expect(directories(tree).count == 3)
            #expect(try store.load(carol)?.generationStore.bytes(imageKey("bob")) == testImage(2).content)
        }
        try tree.withStore { store in
            let found = try store.load(carol)?.generationStore.bytes(imageKey("bob"))
            #expect(found == testImage(2).content)
        }
    }

    @Test func `the sweep removes directories left empty by a kill`() throws {
        let tree = try TestTree()
        try tree.withStore { _ in }
        for path in ["\(tree.cache)/users/1000", "\(tree.state)/keys/1000", "\(tree.state)/sessions/1001"] {
            try #require(mkdir(path, 0o700) == 0)
        }
        try tree.withStore { $0.maintain() }
        #expect(directories(tree) == [])
    }

    @Test func `F41: concurrent logins, PUTs and logouts of one uid do not fail because of removed directories`()
        throws
    {
        let tree = try TestTree()
        try tree.withStore { store in
            let users = (0..<4).map { number -> @Sendable () throws -> Void in
                let owner = Owner(uid: 1000, user: OpaqueID("user \(number)"))
                return {
                    for round in 0..<100 {
                        let generationStore = try store.commitLogin(owner, .plain)
                        try generationStore.put(imageKey("bob"), testImage(UInt8(round)))
                        #expect(try generationStore.bytes(imageKey("bob")) == testImage(UInt8(round)).content)
                        generationStore.close()
                        try store.commitLogout(owner)
                        generationStore.discard()
                    }
                }
            }
            try atOnce(users)
            #expect(directories(tree) == [])
        }
    }
}
