import CacheCore
import Foundation
import Glibc
import Testing

@testable import DiskStore

/// Pending-logout files, which are removed after they are processed (F46).
@Suite struct PendingLogoutFileTests {
    private let tree: TestTree
    private let directory: String
    private let configuration: DiskStoreConfiguration

    init() throws {
        tree = try TestTree()
        directory = tree.root + "/pending"
        var configuration = tree.configuration()
        configuration.pendingLogouts = directory
        self.configuration = configuration
        try #require(mkdir(directory, 0o750) == 0)
    }

    private static func name(_ uid: UInt32, _ digit: String = "a") -> String {
        "\(uid)." + String(repeating: digit, count: 32)
    }

    private func create(_ name: String) throws {
        try Data().write(to: URL(fileURLWithPath: "\(directory)/\(name)"))
    }

    /// The pending-logout files that a start sees.
    private func pending(_ store: DiskStore) throws -> [String] {
        try #require(store.pendingLogoutFiles).pending().map(\.name).sorted()
    }

    private func expectPending(_ names: [String], in store: DiskStore) throws {
        #expect(try pending(store) == names)
    }

    private func remove(_ store: DiskStore, _ names: String...) throws {
        let pendingFiles = try #require(store.pendingLogoutFiles)
        try pendingFiles.remove(try pendingFiles.pending().filter { names.contains($0.name) })
    }

    /// The files in the directory.
    private var left: [String] { tree.files(under: directory).map { String($0.dropFirst(directory.count + 1)) } }

    private func refusal(_ store: DiskStore) -> String? {
        #expect(throws: StoreError.self) { try pending(store) }.map { "\($0)" }
    }

    @Test func `a pending-logout file stays pending until it is removed durably; others stay`()
        throws
    {
        try create(Self.name(1000))
        try create(Self.name(1001))
        try tree.withStore(configuration) { store in
            #expect(try pending(store) == [Self.name(1000), Self.name(1001)])
            #expect(try store.pendingLogoutFiles?.pending().map(\.uid).sorted() == [1000, 1001])
            try remove(store, Self.name(1000))
            #expect(try pending(store) == [Self.name(1001)])
        }
        #expect(left == [Self.name(1001)])
        try tree.withStore(configuration) { try expectPending([Self.name(1001)], in: $0) }
        // A second file for the same uid is another logout.
        try create(Self.name(1000, "b"))
        try tree.withStore(configuration) { try expectPending([Self.name(1000, "b"), Self.name(1001)], in: $0) }
    }

    @Test
    func `removing a pending-logout file that is missing, or whose directory is missing, succeeds`()
        throws
    {
        try create(Self.name(1000))
        try tree.withStore(configuration) { store in
            let pendingFiles = try #require(store.pendingLogoutFiles)
            let due = try pendingFiles.pending()
            try FileManager.default.removeItem(atPath: "\(directory)/\(Self.name(1000))")
            try pendingFiles.remove(due)
            try #require(rmdir(directory) == 0)
            try pendingFiles.remove(due)
        }
    }

    @Test func `a missing or unconfigured directory has no pending logouts`() throws {
        try #require(rmdir(directory) == 0)
        try tree.withStore(configuration) { try expectPending([], in: $0) }
        try tree.withStore { #expect($0.pendingLogoutFiles == nil) }
    }

    @Test(arguments: [
        "1000", "1000.", "1000." + String(repeating: "A", count: 32), "1000." + String(repeating: "a", count: 31),
        "1000." + String(repeating: "a", count: 33), "01000." + String(repeating: "a", count: 32),
        "-1." + String(repeating: "a", count: 32), "4294967296." + String(repeating: "a", count: 32),
        "root." + String(repeating: "a", count: 32), "." + String(repeating: "a", count: 32),
        "1000." + String(repeating: "a", count: 32) + ".tmp", "1000\n." + String(repeating: "a", count: 32),
        "lost+found",
    ])
    func `files of other names are ignored`(name: String)
        throws
    {
        try create(name)
        try create(Self.name(1000))
        try tree.withStore(configuration) { try expectPending([Self.name(1000)], in: $0) }
    }

    @Test(arguments: ["link", "fifo", "directory", "socket"])
    func
        `F24, F26: a pending-logout file that is not a plain file is not followed, opened or waited for`(
            kind: String
        ) throws
    {
        let path = "\(directory)/\(Self.name(1000))"
        switch kind {
        case "link":
            try Data("x".utf8).write(to: URL(fileURLWithPath: tree.root + "/target"))
            try #require(symlink(tree.root + "/target", path) == 0)
        case "fifo": try #require(mkfifo(path, 0o600) == 0)
        case "directory": try #require(mkdir(path, 0o700) == 0)
        default:
            // Created with a short name and moved, because sun_path is limited.
            try #require(mknod(path, S_IFSOCK | 0o600, 0) == 0)
        }
        try create(Self.name(1001))
        try tree.withStore(configuration) { try expectPending([Self.name(1001)], in: $0) }
    }

    @Test(arguments: [0o752, 0o772, 0o777] as [mode_t])
    func `a directory that other users can write to is rejected`(mode: mode_t) throws {
        try create(Self.name(1000))
        try #require(chmod(directory, mode) == 0)
        try tree.withStore(configuration) { store in
            #expect(refusal(store)?.contains("has mode \(String(mode, radix: 8)) and gid") == true)
        }
    }

    @Test func `a group-writable directory is accepted only with owner root and the daemon's group`() throws {
        let system = FaultySystem()
        try create(Self.name(1000))
        try #require(chmod(directory, 0o770) == 0)
        try tree.withStore(configuration, system: system) { store in
            system.pretendOwner(0, group: getegid())
            try expectPending([Self.name(1000)], in: store)
            // The other members of that group are unknown.
            system.pretendOwner(0, group: getegid() + 4_001)
            #expect(refusal(store)?.contains("gid \(getegid() + 4_001), so that users other than root") == true)
            if geteuid() != 0 {
                system.pretendOwner(geteuid(), group: getegid())
                #expect(refusal(store)?.contains("it must belong to root and the daemon's group") == true)
            }
            system.pretendOwner(nil)
        }
    }

    @Test func `a directory of another user is rejected`() throws {
        let system = FaultySystem()
        try create(Self.name(1000))
        try tree.withStore(configuration, system: system) { store in
            for own in [0, geteuid()] {
                system.pretendOwner(own)
                try expectPending([Self.name(1000)], in: store)
            }
            system.pretendOwner(geteuid() + 4_001)
            #expect(
                refusal(store)?.contains("belongs to uid \(geteuid() + 4_001); it must belong to root") == true)
            system.pretendOwner(nil)
        }
    }

    @Test func `F24: a link or file in place of the directory is rejected`() throws {
        try #require(rmdir(directory) == 0)
        let elsewhere = tree.root + "/elsewhere"
        try #require(mkdir(elsewhere, 0o750) == 0 && symlink(elsewhere, directory) == 0)
        try tree.withStore(configuration) { store in
            #expect(refusal(store)?.contains("is not a directory or is a link to one") == true)
        }
        try #require(unlink(directory) == 0)
        try Data().write(to: URL(fileURLWithPath: directory))
        try tree.withStore(configuration) { store in
            #expect(refusal(store)?.contains("is not a directory or is a link to one") == true)
        }
    }

    @Test(arguments: [FaultySystem.Fault.die, .dieAfter])
    func
        `F1, F43: a kill while removing a pending-logout file leaves it pending or removed, and others pending`(
            fault: FaultySystem.Fault
        ) throws
    {
        try create(Self.name(1001))
        var number = 1
        var isDone = false
        while !isDone {
            try create(Self.name(1000))
            let system = FaultySystem()
            let last = number
            try tree.withStore(configuration, system: system) { store in
                let pendingFiles = try #require(store.pendingLogoutFiles)
                let due = try pendingFiles.pending().filter { $0.uid == 1000 }
                system.plan { _, call, _ in call == last ? fault : nil }
                do {
                    try pendingFiles.remove(due)
                    isDone = true
                } catch {
                    #expect(system.isDead)
                }
            }
            #expect(left == [Self.name(1001)] || (!isDone && left == [Self.name(1000), Self.name(1001)]))
            number += 1
        }
        // Each call was interrupted once: open, stat, unlink and fsync.
        #expect(number > 5)
    }

    @Test func `F7: a removal whose fsync fails is repeated`() throws {
        try create(Self.name(1000))
        let system = FaultySystem()
        try tree.withStore(configuration, system: system) { store in
            system.plan { call, _, _ in call == .sync ? .fail(EIO) : nil }
            #expect(throws: StoreError.self) { try remove(store, Self.name(1000)) }
            system.heal()
            try expectPending([Self.name(1000)], in: store)
            try remove(store, Self.name(1000))
            #expect(system.count(of: .unlink) == 1)
            try expectPending([], in: store)
        }
    }

    @Test func `a pending-logout file that cannot be removed is an error and does not prevent removing others`()
        throws
    {
        try create(Self.name(1000))
        try create(Self.name(1001))
        let system = FaultySystem()
        try tree.withStore(configuration, system: system) { store in
            let pendingFiles = try #require(store.pendingLogoutFiles)
            let due = try pendingFiles.pending()
            system.plan { call, _, number in call == .unlink && number == 1 ? .fail(EACCES) : nil }
            let error = #expect(throws: StoreError.self) { try pendingFiles.remove(due) }
            let message = error.map { "\($0)" } ?? ""
            #expect(message.contains("cannot be written to: unlinkat: EACCES"), "\(message)")
            #expect(message.contains("it must belong to root and the daemon"), "\(message)")
            system.heal()
            #expect(try pending(store) == [due[0].name])
        }
    }
}
