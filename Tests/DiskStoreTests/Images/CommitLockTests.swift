import CacheCore
import Dispatch
import Foundation
import NIOConcurrencyHelpers
import Testing

@testable import DiskStore

/// Reads during a purge, which holds a commit lock for the duration of an fsync.
@Suite struct CommitLockTests {
    @Test func `a read whose bucket is not open does not wait for a commit lock`() throws {
        let tree = try TestTree()
        try tree.withStore { store in
            let generationStore = try #require(try store.commitLogin(alice, .plain) as? DiskGenerationStore)
            try generationStore.put(imageKey("bob", 64), testImage(1))
            let path = try #require(tree.entries.first).split(separator: "/")
            let bucket = try #require(BucketName.bucket(of: FileName(String(path[path.count - 2]))))
            #expect(store.images.disk.directories.closeAll())
            let seen = NIOLockedValueBox<([UInt8]?, [ImageKey]?)>((nil, nil))
            let isDone = DispatchSemaphore(value: 0)
            store.images.withLock(generationStore.generation, bucket) {
                Thread.detachNewThread {
                    expectSuccess {
                        let bytes = try generationStore.bytes(imageKey("bob", 64))
                        _ = store.images.disk.directories.closeAll()
                        let imageKeys = try generationStore.imageKeys(of: OpaqueID("bob"))
                        seen.withLockedValue { $0 = (bytes, imageKeys) }
                    }
                    isDone.signal()
                }
                // Reached only if the read waits.
                #expect(isDone.wait(timeout: .now() + 20) == .success)
            }
            #expect(seen.withLockedValue { $0.0 } == testImage(1).content)
            #expect(seen.withLockedValue { $0.1 } == [imageKey("bob", 64)])
        }
    }

    @Test func `F73: a directory that may have been removed while it was opened is not cached`() throws {
        let tree = try TestTree()
        let disk = try Disk(system: LinuxFileSystem(), openDirectories: 4, random: SecureRandom())
        let cache = disk.directories
        let directory = try disk.openRoot(tree.root)
        let (key, other) = (DirectoryCache.Key(generation: 1, bucket: 2), DirectoryCache.Key(generation: 1, bucket: 3))
        let before = cache.removals
        cache.insert(directory, for: key, unlessRemovedSince: before)
        #expect(cache[key] != nil)
        cache.remove(key)
        cache.insert(directory, for: key, unlessRemovedSince: before)
        #expect(cache[key] == nil)
        cache.insert(directory, for: other, unlessRemovedSince: cache.removals)
        #expect(cache[other] != nil)
        // Nothing is removed while the commit lock is held.
        cache.insert(directory, for: key)
        #expect(cache[key] != nil)
    }
}
