import CacheCore
import Foundation
import Glibc
import Testing

@testable import DiskStore

/// Markers of log-outs on disk, which are removed when they are processed (F46).
@Suite struct PendingMarkerTests {
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

    private func leave(_ name: String) throws {
        try Data().write(to: URL(fileURLWithPath: "\(directory)/\(name)"))
    }

    /// What is pending, as one start sees it.
    private func pending(_ store: DiskStore) throws -> [String] {
        try #require(store.logoutMarkers).pending().map(\.name).sorted()
    }

    private func expectPending(_ names: [String], in store: DiskStore) throws {
        #expect(try pending(store) == names)
    }

    private func remove(_ store: DiskStore, _ names: String...) throws {
        let markers = try #require(store.logoutMarkers)
        try markers.remove(try markers.pending().filter { names.contains($0.name) })
    }

    /// What lies in the directory.
    private var left: [String] { tree.files(under: directory).map { String($0.dropFirst(directory.count + 1)) } }

    private func refusal(_ store: DiskStore) -> String? {
        #expect(throws: StoreError.self) { try pending(store) }.map { "\($0)" }
    }

    @Test func `a marker is pending until it is removed, which outlives a restart; no other is touched`() throws {
        try leave(Self.name(1000))
        try leave(Self.name(1001))
        try tree.withStore(configuration) { store in
            #expect(try pending(store) == [Self.name(1000), Self.name(1001)])
            #expect(try store.logoutMarkers?.pending().map(\.uid).sorted() == [1000, 1001])
            try remove(store, Self.name(1000))
            #expect(try pending(store) == [Self.name(1001)])
        }
        #expect(left == [Self.name(1001)])
        try tree.withStore(configuration) { try expectPending([Self.name(1001)], in: $0) }
        // Another one for the same uid is another log-out.
        try leave(Self.name(1000, "b"))
        try tree.withStore(configuration) { try expectPending([Self.name(1000, "b"), Self.name(1001)], in: $0) }
    }

    @Test func `a marker that its hook has removed meanwhile is removed, and so is one whose directory is gone`() throws
    {
        try leave(Self.name(1000))
        try tree.withStore(configuration) { store in
            let markers = try #require(store.logoutMarkers)
            let due = try markers.pending()
            try FileManager.default.removeItem(atPath: "\(directory)/\(Self.name(1000))")
            try markers.remove(due)
            try #require(rmdir(directory) == 0)
            try markers.remove(due)
        }
    }

    @Test func `without the directory, or with none configured, nothing is pending`() throws {
        try #require(rmdir(directory) == 0)
        try tree.withStore(configuration) { try expectPending([], in: $0) }
        try tree.withStore { #expect($0.logoutMarkers == nil) }
    }

    @Test(arguments: [
        "1000", "1000.", "1000." + String(repeating: "A", count: 32), "1000." + String(repeating: "a", count: 31),
        "1000." + String(repeating: "a", count: 33), "01000." + String(repeating: "a", count: 32),
        "-1." + String(repeating: "a", count: 32), "4294967296." + String(repeating: "a", count: 32),
        "root." + String(repeating: "a", count: 32), "." + String(repeating: "a", count: 32),
        "1000." + String(repeating: "a", count: 32) + ".tmp", "1000\n." + String(repeating: "a", count: 32),
        "lost+found",
    ])
    func `a file of another name is no marker, and keeps nobody from seeing those that are`(name: String) throws {
        try leave(name)
        try leave(Self.name(1000))
        try tree.withStore(configuration) { try expectPending([Self.name(1000)], in: $0) }
    }

    @Test(arguments: ["link", "fifo", "directory", "socket"])
    func `F24, F26: what bears a marker's name and is no plain file is not followed, not opened, not blocked on`(
        kind: String
    ) throws {
        let path = "\(directory)/\(Self.name(1000))"
        switch kind {
        case "link":
            try Data("x".utf8).write(to: URL(fileURLWithPath: tree.root + "/target"))
            try #require(symlink(tree.root + "/target", path) == 0)
        case "fifo": try #require(mkfifo(path, 0o600) == 0)
        case "directory": try #require(mkdir(path, 0o700) == 0)
        default:
            // A short name in that directory: sun_path is only so long.
            try #require(mknod(path, S_IFSOCK | 0o600, 0) == 0)
        }
        try leave(Self.name(1001))
        try tree.withStore(configuration) { try expectPending([Self.name(1001)], in: $0) }
    }

    @Test(arguments: [0o752, 0o772, 0o777] as [mode_t])
    func `a directory that anybody else may write into is refused`(mode: mode_t) throws {
        try leave(Self.name(1000))
        try #require(chmod(directory, mode) == 0)
        try tree.withStore(configuration) { store in
            #expect(refusal(store)?.contains("has mode \(String(mode, radix: 8)) and belongs to gid") == true)
        }
    }

    @Test func `a directory that a group may write into is taken when it is root's, and the group the daemon's`() throws
    {
        let system = FaultySystem()
        try leave(Self.name(1000))
        try #require(chmod(directory, 0o770) == 0)
        try tree.withStore(configuration, system: system) { store in
            system.pretendOwner(0, group: getegid())
            try expectPending([Self.name(1000)], in: store)
            // Who else is in that group is not known.
            system.pretendOwner(0, group: getegid() + 4_001)
            #expect(refusal(store)?.contains("belongs to gid \(getegid() + 4_001), so that others") == true)
            if geteuid() != 0 {
                system.pretendOwner(geteuid(), group: getegid())
                #expect(refusal(store)?.contains("it must belong to root and to the daemon's group") == true)
            }
            system.pretendOwner(nil)
        }
    }

    @Test func `a directory of another user is refused`() throws {
        let system = FaultySystem()
        try leave(Self.name(1000))
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

    @Test func `F24: a link or a file in place of the directory is refused`() throws {
        try #require(rmdir(directory) == 0)
        let elsewhere = tree.root + "/elsewhere"
        try #require(mkdir(elsewhere, 0o750) == 0 && symlink(elsewhere, directory) == 0)
        try tree.withStore(configuration) { store in
            #expect(refusal(store)?.contains("is no directory, or a link to one") == true)
        }
        try #require(unlink(directory) == 0)
        try Data().write(to: URL(fileURLWithPath: directory))
        try tree.withStore(configuration) { store in
            #expect(refusal(store)?.contains("is no directory, or a link to one") == true)
        }
    }

    @Test(arguments: [FaultySystem.Fault.die, .dieAfter])
    func `F1, F43: killed at any call of removing it, a marker is removed or pending, and no other is touched`(
        fault: FaultySystem.Fault
    ) throws {
        try leave(Self.name(1001))
        var number = 1
        var isDone = false
        while !isDone {
            try leave(Self.name(1000))
            let system = FaultySystem()
            let last = number
            try tree.withStore(configuration, system: system) { store in
                let markers = try #require(store.logoutMarkers)
                let due = try markers.pending().filter { $0.uid == 1000 }
                system.plan { _, call, _ in call == last ? fault : nil }
                do {
                    try markers.remove(due)
                    isDone = true
                } catch {
                    #expect(system.isDead)
                }
            }
            #expect(left == [Self.name(1001)] || (!isDone && left == [Self.name(1000), Self.name(1001)]))
            number += 1
        }
        // Opening, looking at the directory, unlinking and syncing were each the last call once.
        #expect(number > 5)
    }

    @Test func `F7: a removal whose fsync fails is done anew: the marker is pending again`() throws {
        try leave(Self.name(1000))
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

    @Test func `one marker that cannot be removed is an error, says why, and does not keep the others`() throws {
        try leave(Self.name(1000))
        try leave(Self.name(1001))
        let system = FaultySystem()
        try tree.withStore(configuration, system: system) { store in
            let markers = try #require(store.logoutMarkers)
            let due = try markers.pending()
            system.plan { call, _, number in call == .unlink && number == 1 ? .fail(EACCES) : nil }
            let error = #expect(throws: StoreError.self) { try markers.remove(due) }
            let message = error.map { "\($0)" } ?? ""
            #expect(message.contains("cannot be written to: unlinkat: EACCES"), "\(message)")
            #expect(message.contains("it must belong to root and to the daemon"), "\(message)")
            system.heal()
            #expect(try pending(store) == [due[0].name])
        }
    }
}
