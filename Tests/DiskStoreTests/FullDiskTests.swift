import DiskStore
import Foundation
import Testing
import ThumbnailCache

/// A file system of its own, as small as asked, for as long as the body runs. Where nothing may be mounted the body
/// does not run: what it holds is then held by the tests that fail the calls.
private func withSmallDisk(_ options: String, _ body: (TestTree) throws -> Void) throws {
    let tree = try TestTree()
    let mountPoint = tree.root + "/disk"
    try FileManager.default.createDirectory(atPath: mountPoint, withIntermediateDirectories: false)
    guard mount("tmpfs", mountPoint, "tmpfs", 0, options) == 0 else { return }
    defer { #expect(umount(mountPoint) == 0) }
    try body(try TestTree(within: mountPoint))
}

private func fillUp(_ tree: TestTree) throws {
    // Through to the last byte: a large file, then small ones.
    for (number, size) in [1 << 20, 4096, 1].enumerated() {
        // Without an inode left there is nothing more to fill.
        guard let handle = fopen(tree.root + "/filler\(number)", "w") else { return }
        defer { fclose(handle) }
        let block = [UInt8](repeating: 1, count: size)
        while fwrite(block, 1, size, handle) == size, fflush(handle) == 0 {}
    }
}

@Suite(.serialized) struct FullDiskTests {
    @Test(arguments: ["size=8m", "size=64m,nr_inodes=400"])
    func `F4, F5: with no room left hits are served, PUT says so or makes room, PURGE and LOGOUT work`(
        options: String
    ) throws {
        try withSmallDisk(options) { tree in
            var kept = 0
            try tree.withStore { store in
                store.maintain()
                let ofAlice = try store.commitLogin(alice, .plain)
                let ofBob = try store.commitLogin(bob, .plain)
                try ofBob.put(slot("bob"), picture(1))
                // More than fits: the user's own oldest images make room.
                let large = picture(2, count: 60_000)
                for number in 0..<300 { try ofAlice.put(slot("\(number)"), large) }
                kept = tree.entries.count
                #expect(kept < 301)
                #expect(store.statistics.evictedImages > 0)
                try fillUp(tree)
                #expect(try ofBob.bytes(slot("bob")) == picture(1).content)
                let huge = picture(3, count: 500_000)
                #expect(throws: StoreError.self) {
                    for number in 0..<20 { try ofBob.put(slot("\(number)"), huge) }
                }
                #expect(tree.temporaries.isEmpty)

                ofAlice.close()
                let renewed = try store.commitPurge(alice)
                ofAlice.discard()
                ofBob.close()
                try store.commitLogout(bob)
                ofBob.discard()
                #expect(try store.users(of: 1000) == [alice.user])
                store.maintain()
                #expect(tree.entries.isEmpty)
                try renewed.put(slot("new"), picture(4))
            }
            try tree.withStore { store in
                let vault = try #require(try store.load(alice)).vault
                #expect(try vault.bytes(slot("new")) == picture(4).content)
                #expect(try store.load(bob) == nil)
            }
        }
    }
}
