import CacheCore
import Glibc
import LinuxSupport
import Testing

@testable import DiskStore

/// The effect of a failed fsync on earlier, concurrent and later ones (F7).
@Suite struct DirectorySyncTests {
    private let tree: TestTree
    private let system = FaultySystem()
    private let directory: Directory
    private let disk: Disk

    init() throws {
        tree = try TestTree()
        disk = try Disk(system: system, openDirectories: 1, random: SecureRandom())
        directory = try disk.openRoot(tree.root)
    }

    @Test func `I4, F7: an fsync that succeeds during a failed one does not hide the failure`()
        throws
    {
        let (disk, directory) = (disk, directory)
        system.plan { call, _, ofKind in
            guard call == .sync else { return nil }
            // The second fsync fails during the first.
            if ofKind == 1 { #expect(throws: SystemError.self) { try disk.sync(directory, .keys) } }
            return ofKind == 2 ? .fail(EIO) : nil
        }
        #expect(throws: SystemError(.sync, EIO)) { try disk.sync(directory, .keys) }
        #expect(system.count(of: .sync) == 2)
        #expect(disk.hasFailedSync(.keys))
        #expect(!disk.hasFailedSync(.sessions))
        // The next fsync changes the directory first.
        system.heal()
        try disk.sync(directory, .keys)
        #expect(system.count(of: .unlink) == 1)
        #expect(!disk.hasFailedSync(.keys))
        try disk.sync(directory, .keys)
        #expect(system.count(of: .unlink) == 1)
    }

    @Test func `F7: a later fsync after a change clears an earlier failure`() throws {
        system.plan { call, _, ofKind in call == .sync && ofKind <= 2 ? .fail(EIO) : nil }
        for _ in 0..<2 {
            #expect(throws: SystemError.self) { try disk.sync(directory, .images(.init(generation: 7, bucket: nil))) }
        }
        try disk.sync(directory, .images(.init(generation: 7, bucket: nil)))
        #expect(!disk.hasFailedSync(.images(.init(generation: 7, bucket: nil))))
        #expect(tree.files() == [])
    }
}
