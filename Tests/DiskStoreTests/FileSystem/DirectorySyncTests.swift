import Glibc
import LinuxSupport
import Testing
import ThumbnailCache

@testable import DiskStore

/// What an fsync that failed says of those before it, beside it and after it (F7).
@Suite struct DirectorySyncTests {
    private let tree: TestTree
    private let system = FaultySystem()
    private let directory: Directory
    private let sync: DirectorySync

    init() throws {
        tree = try TestTree()
        let disk = Disk(
            system: system, directories: DirectoryCache(capacity: 1), openEntries: OpenEntries(capacity: 0))
        directory = try disk.openRoot(tree.root)
        sync = DirectorySync(disk: disk, temporaries: try TemporaryNames(random: SecureRandom()))
    }

    @Test func `I4, F7: an fsync that succeeds beside one that failed proves nothing, and does not hide the failure`()
        throws
    {
        let (sync, directory) = (sync, directory)
        system.plan { call, _, ofKind in
            guard call == .sync else { return nil }
            // While the first is under way the second fails.
            if ofKind == 1 { #expect(throws: SystemError.self) { try sync.sync(directory, .keys) } }
            return ofKind == 2 ? .fail(EIO) : nil
        }
        #expect(throws: SystemError(.sync, EIO)) { try sync.sync(directory, .keys) }
        #expect(system.count(of: .sync) == 2)
        #expect(sync.isUnsettled(.keys))
        #expect(!sync.isUnsettled(.sessions))
        // The next one changes the directory first.
        system.heal()
        try sync.sync(directory, .keys)
        #expect(system.count(of: .unlink) == 1)
        #expect(!sync.isUnsettled(.keys))
        try sync.sync(directory, .keys)
        #expect(system.count(of: .unlink) == 1)
    }

    @Test func `F7: a failure that was there before is settled by an fsync that failed once and then succeeds`() throws
    {
        system.plan { call, _, ofKind in call == .sync && ofKind <= 2 ? .fail(EIO) : nil }
        for _ in 0..<2 { #expect(throws: SystemError.self) { try sync.sync(directory, .generation(7)) } }
        try sync.sync(directory, .generation(7))
        #expect(!sync.isUnsettled(.generation(7)))
        #expect(tree.files() == [])
    }
}
