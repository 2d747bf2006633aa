import Foundation
import Glibc
import Testing
import ThumbnailCache

@testable import DiskStore

/// Markers of log-outs on disk, and the record of those that were honoured (F46).
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

    private func remove(_ name: String) throws {
        try FileManager.default.removeItem(atPath: "\(directory)/\(name)")
    }

    /// What is pending, as one start sees it.
    private func pending(_ store: DiskStore) throws -> [String] {
        try #require(store.logoutMarkers).pending().map(\.name).sorted()
    }

    private func expectPending(_ names: [String], in store: DiskStore) throws {
        #expect(try pending(store) == names)
    }

    private func record(_ store: DiskStore, _ names: String...) throws {
        let markers = try #require(store.logoutMarkers)
        try markers.record(try markers.pending().filter { names.contains($0.name) })
    }

    private func recorded() throws -> String {
        try String(contentsOfFile: tree.state + "/honoured-logouts", encoding: .utf8)
    }

    private func refusal(_ store: DiskStore) -> String? {
        #expect(throws: StoreError.self) { try pending(store) }.map { "\($0)" }
    }

    @Test func `a marker is pending until it is on record, which outlives a restart; the file itself is not touched`()
        throws
    {
        try leave(Self.name(1000))
        try leave(Self.name(1001))
        try tree.withStore(configuration) { store in
            #expect(try pending(store) == [Self.name(1000), Self.name(1001)])
            #expect(try store.logoutMarkers?.pending().map(\.uid).sorted() == [1000, 1001])
            try record(store, Self.name(1000))
            #expect(try pending(store) == [Self.name(1001)])
        }
        try tree.withStore(configuration) { try expectPending([Self.name(1001)], in: $0) }
        #expect(tree.files(under: directory).count == 2)
        // Another one for the same uid is another log-out.
        try leave(Self.name(1000, "b"))
        try tree.withStore(configuration) { try expectPending([Self.name(1000, "b"), Self.name(1001)], in: $0) }
    }

    @Test
    func `I8: what is gone from the directory is forgotten with the next that is kept, so the record stays short`()
        throws
    {
        try tree.withStore(configuration) { store in
            for digit in ["1", "2", "3", "4"] {
                try leave(Self.name(1000, digit))
                try record(store, Self.name(1000, digit))
                #expect(try recorded() == Self.name(1000, digit) + "\n")
                try remove(Self.name(1000, digit))
            }
        }
        #expect(tree.temporaries.isEmpty)
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

    @Test(arguments: [0o770, 0o752, 0o777] as [mode_t])
    func `a directory that somebody else may write into is refused`(mode: mode_t) throws {
        try leave(Self.name(1000))
        try #require(chmod(directory, mode) == 0)
        try tree.withStore(configuration) { store in
            let message = refusal(store)
            #expect(message?.contains("has mode \(String(mode, radix: 8)), writable for others than root") == true)
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

    @Test func `a damaged record keeps what can be read of it: the rest is honoured again, never passed over`() throws {
        for digit in ["1", "2", "3"] { try leave(Self.name(1000, digit)) }
        try tree.withStore(configuration) { store in
            try record(store, Self.name(1000, "1"), Self.name(1000, "2"))
        }
        let text = try recorded()
        try Data(text.dropLast(5).utf8).write(to: URL(fileURLWithPath: tree.state + "/honoured-logouts"))
        try tree.withStore(configuration) { try expectPending([Self.name(1000, "2"), Self.name(1000, "3")], in: $0) }
    }

    @Test(arguments: [FaultySystem.Fault.die, .dieAfter])
    func
        `F1, F43: killed at any call of keeping it on record, a marker is on record or pending, and nothing is damaged`(
            fault: FaultySystem.Fault
        ) throws
    {
        try leave(Self.name(1000, "1"))
        try tree.withStore(configuration) { try record($0, Self.name(1000, "1")) }
        try leave(Self.name(1000, "2"))
        var number = 1
        var isDone = false
        while !isDone {
            let system = FaultySystem()
            let last = number
            try tree.withStore(configuration, system: system) { store in
                let markers = try #require(store.logoutMarkers)
                let due = try markers.pending()
                #expect(due.map(\.name) == [Self.name(1000, "2")])
                system.plan { _, call, _ in call == last ? fault : nil }
                do {
                    try markers.record(due)
                    isDone = true
                } catch {
                    #expect(system.isDead)
                }
            }
            try tree.withStore(configuration) { store in
                let left = try pending(store)
                #expect(left == [] || (!isDone && left == [Self.name(1000, "2")]))
            }
            // As if it had not been: for the next round.
            try Data("\(Self.name(1000, "1"))\n".utf8).write(
                to: URL(fileURLWithPath: tree.state + "/honoured-logouts"))
            number += 1
        }
        #expect(number > 5)
    }

    @Test func `F7: a record whose fsync fails was not kept`() throws {
        try leave(Self.name(1000))
        let system = FaultySystem()
        try tree.withStore(configuration, system: system) { store in
            system.plan { call, _, _ in call == .sync ? .fail(EIO) : nil }
            #expect(throws: StoreError.self) { try record(store, Self.name(1000)) }
            system.heal()
            try expectPending([Self.name(1000)], in: store)
        }
    }
}
