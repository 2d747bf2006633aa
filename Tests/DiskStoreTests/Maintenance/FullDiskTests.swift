import CacheCore
import DiskStore
import Foundation
import Glibc
import Testing

/// A namespace in which anybody may mount.
private let mountNamespace =
    geteuid() == 0 ? ["unshare", "--mount"] : ["unshare", "--user", "--map-root-user", "--mount"]

/// A program that has the machine's streams unless others are set.
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

@Test func `F4: a log-out finds the room that another has made by giving up the reserve`() throws {
    let tree = try TestTree()
    let system = FaultySystem()
    try tree.withStore(system: system) { store in
        _ = try store.commitLogin(alice, .plain)
        store.maintain()
        // There is no room at first; and when it is to be given up, the reserve is gone, and there is.
        system.plan { call, _, ofKind in
            guard call == .write, ofKind == 1 else { return nil }
            expectSuccess { try FileManager.default.removeItem(atPath: tree.state + "/keys/reserve") }
            return .fail(ENOSPC)
        }
        try store.commitLogout(alice)
        #expect(tree.keyFiles.isEmpty)
    }
}

/// A file system of its own, as small as asked, for as long as the body runs. It is mounted in a namespace that a
/// process holds, and seen from here through that process; with it, it goes.
private func withSmallDisk(_ options: String, _ body: (TestTree) throws -> Void) throws {
    let tree = try TestTree()
    let mountPoint = tree.root + "/disk"
    try FileManager.default.createDirectory(atPath: mountPoint, withIntermediateDirectories: false)
    let script = "mount -t tmpfs -o \"$1\" tmpfs \"$0\" && echo mounted && exec cat"
    let holder = process(mountNamespace + ["sh", "-c", script, mountPoint, options])
    // Of the tests' end, however it comes, it learns by the end of its input.
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
    @Test(
        .enabled(if: canMount, "no namespace with a small file system may be made here"),
        arguments: ["size=8m", "size=64m,nr_inodes=400"])
    func `F4, F5: with no room left hits are served, PUT says so or makes room, PURGE and LOGOUT work`(
        options: String
    ) throws {
        try withSmallDisk(options) { tree in
            var kept = 0
            try tree.withStore { store in
                store.maintain()
                let ofAlice = try store.commitLogin(alice, .plain)
                let ofBob = try store.commitLogin(bob, .plain)
                try ofBob.put(imageKey("bob"), picture(1))
                // More than fits: the user's own oldest images make room.
                let large = picture(2, count: 60_000)
                for number in 0..<300 { try ofAlice.put(imageKey("\(number)"), large) }
                kept = tree.entries.count
                #expect(kept < 301)
                #expect(store.counters[.evictedImages] > 0)
                try fillUp(tree)
                #expect(try ofBob.bytes(imageKey("bob")) == picture(1).content)
                let huge = picture(3, count: 500_000)
                do {
                    for number in 0..<20 { try ofBob.put(imageKey("\(number)"), huge) }
                    // Short of inodes alone, an image of the user's own makes room, with the directory that it was
                    // alone in.
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
                try renewed.put(imageKey("new"), picture(4))
            }
            try tree.withStore { store in
                let generationStore = try #require(try store.load(alice)).generationStore
                #expect(try generationStore.bytes(imageKey("new")) == picture(4).content)
                #expect(try store.load(bob) == nil)
            }
        }
    }
}
