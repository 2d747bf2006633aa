import CacheCore
import DiskStore
import Foundation
import Glibc
import Testing

/// A user namespace that permits mounting.
private let mountNamespace =
    geteuid() == 0 ? ["unshare", "--mount"] : ["unshare", "--user", "--map-root-user", "--mount"]

/// A process with standard streams of the test unless set.
private func process(_ words: [String]) -> Process {
    let process = Process()
    process.executableURL = URL(filePath: "/usr/bin/env")
    process.arguments = words
    return process
}

private let canMount: Bool = {
    let attempt = process(mountNamespace + ["mount", "-t", "tmpfs", "tmpfs", "/mnt"])
    guard (try? attempt.run()) != nil else { return false }
    attempt.waitUntilExit()
    return attempt.terminationStatus == 0
}()

@Test func `F4: a logout uses the reserve that another thread has released`() throws {
    let tree = try TestTree()
    let system = FaultySystem()
    try tree.withStore(system: system) { store in
        _ = try store.commitLogin(alice, .plain)
        store.maintain()
        // There is no room at first; another thread releases the reserve just before this one tries to.
        system.plan { call, _, ofKind in
            guard call == .write, ofKind == 1 else { return nil }
            expectSuccess { try FileManager.default.removeItem(atPath: tree.state + "/keys/reserve") }
            return .fail(ENOSPC)
        }
        try store.commitLogout(alice)
        #expect(tree.keyFiles.isEmpty)
    }
}

/// Mounts a small file system for the duration of `body`. It belongs to the namespace of a process, is reached through
/// that process, and disappears with it.
private func withSmallDisk(_ options: String, _ body: (TestTree) throws -> Void) throws {
    let tree = try TestTree()
    let mountPoint = tree.root + "/disk"
    try FileManager.default.createDirectory(atPath: mountPoint, withIntermediateDirectories: false)
    let script = "mount -t tmpfs -o \"$1\" tmpfs \"$0\" && echo mounted && exec cat"
    let holder = process(mountNamespace + ["sh", "-c", script, mountPoint, options])
    // The process exits when its input closes.
    let (input, output) = (Pipe(), Pipe())
    holder.standardInput = input
    holder.standardOutput = output
    try holder.run()
    defer {
        kill(holder.processIdentifier, SIGKILL)
        holder.waitUntilExit()
    }
    try #require(output.fileHandleForReading.availableData == Data("mounted\n".utf8))
    try body(try TestTree(within: "/proc/\(holder.processIdentifier)/root\(mountPoint)"))
}

private func fillUp(_ tree: TestTree) throws {
    // Fill the disk to the last byte: a large file, then small ones.
    for (number, size) in [1 << 20, 4096, 1].enumerated() {
        // Without a free inode, there is nothing to fill.
        guard let handle = fopen(tree.root + "/filler\(number)", "w") else { return }
        defer { fclose(handle) }
        let block = [UInt8](repeating: 1, count: size)
        while fwrite(block, 1, size, handle) == size, fflush(handle) == 0 {}
    }
}

@Suite(.serialized) struct FullDiskTests {
    @Test(
        .enabled(if: canMount, "mounting in a user namespace is not permitted"),
        arguments: ["size=8m", "size=64m,nr_inodes=400"])
    func `F4, F5: on a full disk hits are served, PUT fails or evicts, and PURGE and LOGOUT work`(
        options: String
    ) throws {
        try withSmallDisk(options) { tree in
            var kept = 0
            try tree.withStore { store in
                store.maintain()
                let ofAlice = try store.commitLogin(alice, .plain)
                let ofBob = try store.commitLogin(bob, .plain)
                try ofBob.put(imageKey("bob"), testImage(1))
                // Too large: the user's oldest images make room.
                let large = testImage(2, count: 60_000)
                for number in 0..<300 { try ofAlice.put(imageKey("\(number)"), large) }
                kept = tree.entries.count
                #expect(kept < 301)
                #expect(store.counters[.evictedImages] > 0)
                try fillUp(tree)
                #expect(try ofBob.bytes(imageKey("bob")) == testImage(1).content)
                let huge = testImage(3, count: 500_000)
                do {
                    for number in 0..<20 { try ofBob.put(imageKey("\(number)"), huge) }
                    // If only inodes are missing, one image of the user makes room, with its directory.
                    #expect(options.contains("nr_inodes"))
                    #expect(try ofBob.bytes(imageKey("19")) == huge.content)
                } catch {
                    #expect(error is StoreError)
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
                try renewed.put(imageKey("new"), testImage(4))
            }
            try tree.withStore { store in
                let generationStore = try #require(try store.load(alice)).generationStore
                #expect(try generationStore.bytes(imageKey("new")) == testImage(4).content)
                #expect(try store.load(bob) == nil)
            }
        }
    }
}
