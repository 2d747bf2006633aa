import CacheCore
import DiskStore
import Foundation
import Glibc
import NIOConcurrencyHelpers
import Testing

/// Inspections of intact stores, and guarantees of every inspection.
@Suite struct StoreInspectionTests {
    private let tree: TestTree

    init() throws { tree = try TestTree() }

    /// Three logins with images, trash of a purge and a logout, and a pending logout.
    private func fill(_ store: DiskStore) throws {
        for (number, owner) in [alice, bob, carol].enumerated() {
            let generationStore = try store.commitLogin(owner, .plain)
            for profile in 0..<20 {
                try generationStore.put(imageKey("\(profile)", 64), testImage(UInt8(number), count: 3_000))
            }
            try generationStore.put(imageKey("0", 64), testImage(9, url: "https://example.org/9"))
        }
        let generationStore = try #require(try store.load(bob)).generationStore
        generationStore.close()
        let renewed = try store.commitPurge(bob)
        generationStore.discard()
        try renewed.put(imageKey("after", 0), testImage(1))
        try store.commitSessions(carol, .plain)
    }

    @Test(arguments: DiskStoreConfiguration.KeyStorage.allCases)
    func `I5: an intact store has no findings, and its usage equals the daemon's`(
        keys: DiskStoreConfiguration.KeyStorage
    ) throws {
        let configuration = tree.configuration(keys: keys)
        var total = Usage()
        let inspect = {
            let report = try tree.inspection(configuration) { _ in Issue.record("unexpected second scan") }
                .report()
            #expect(report.findings == [])
            #expect(report.unread == [])
            #expect(report.users == 3)
            #expect(report.held == total)
            return report
        }
        try tree.withStore(configuration) { store in
            try fill(store)
            total = store.usageTotal
            #expect(try inspect().trash == store.trashUsage)
            store.maintain()
            #expect(try inspect().trash == Usage())
        }
        // The key directories may also contain files of other programs.
        if keys == .runtime { try plant("\(tree.runtime)/socket") }
        _ = try inspect()
        #expect(total.images == 41)
    }

    @Test func `nested and shared directories have no findings`() throws {
        for (cache, state, pending) in [("", "", "pending"), ("", "/deep/state", "deep/pending"), ("/c", "", "c/p")] {
            let tree = try TestTree()
            var configuration = tree.configuration()
            configuration.cacheDirectory = tree.root + "/all" + cache
            configuration.stateDirectory = tree.root + "/all" + state
            configuration.pendingLogouts = tree.root + "/all/" + pending
            try tree.withStore(configuration) { store in
                try store.commitLogin(alice, .plain).put(imageKey("bob"), testImage(1))
                mkdir(tree.root + "/all/" + pending, 0o750)
                #expect(try tree.inspection(configuration).report().problems(in: tree) == [])
                try plant(tree.root + "/all/stranger")
                let report = try tree.inspection(configuration).report()
                #expect(report.problems(in: tree) == ["foreign all/stranger"])
                #expect(report.users == 1)
                #expect(report.held.images == 1)
            }
        }
    }

    @Test func `an inspection changes nothing, not even a time`() throws {
        try tree.withStore { store in
            try fill(store)
            let before = try tree.everything()
            _ = try tree.inspection().report()
            _ = try tree.inspection().traces(of: alice.user, uid: nil)
            #expect(try tree.everything() == before)
        }
    }

    @Test func `F24: an inspection makes no call that changes or locks anything`() throws {
        try tree.withStore { try fill($0) }
        try Data([1]).write(to: URL(fileURLWithPath: "\(tree.cache)/users/planted"))
        try FileManager.default.createSymbolicLink(
            atPath: "\(tree.cache)/trash/link", withDestinationPath: "/etc")
        let system = FaultySystem()
        let inspection = try tree.inspection(system: system)
        #expect(inspection.report().findings.count == 1)
        _ = try inspection.traces(of: alice.user, uid: 1000)
        let harmless: Set<SystemCall> = [.open, .statusOfDescriptor, .statusOfName, .read, .list, .close]
        for call in SystemCall.allCases where !harmless.contains(call) {
            #expect(system.count(of: call) == 0, "\(call.rawValue)")
        }
        #expect(system.descriptors <= 3, "more than the configured directories are open")
        // Changes are rejected before the system call.
        for purpose in [OpenPurpose.creating, .overwriting, .keeping] {
            #expect(throws: (any Error).self) {
                try ReadOnlyFileSystem().open(FileName("\(tree.cache)/VERSION"), in: AT_FDCWD, for: purpose)
            }
        }
    }

    // MARK: Further scans

    private func plant(_ path: String, _ bytes: [UInt8] = [1, 2, 3]) throws {
        try Data(bytes).write(to: URL(fileURLWithPath: path))
        chmod(path, 0o600)
    }

    @Test func `a problem that disappears or changes before the next scan is not a finding`() throws {
        try tree.withStore { try fill($0) }
        let generation = URL(fileURLWithPath: try #require(tree.entries.first)).deletingLastPathComponent()
            .deletingLastPathComponent().path
        let (gone, replaced) = ("\(generation)/tmp.0123456789abcdef.7", "\(try #require(tree.keyFiles.first)).tmp")
        try plant(gone)
        try plant(replaced)
        let scans = NIOLockedValueBox<[Int]>([])
        let report = try tree.inspection { scan in
            scans.withLockedValue { $0.append(scan) }
            expectSuccess {
                if scan == 1 { try FileManager.default.removeItem(atPath: gone) }
                // The next write to the same name: another file, or the same inode with another time.
                try plant(replaced, [UInt8](repeating: 1, count: scan))
            }
        }.report()
        #expect(report.problems(in: tree) == [])
        #expect(scans.withLockedValue { $0 } == [1], "more than two scans")
    }

    @Test func `a problem is reported after five more scans`() throws {
        try tree.withStore { try fill($0) }
        let stays = try #require(tree.keyFiles.first) + ".tmp"
        try plant(stays)
        let scans = NIOLockedValueBox<[Int]>([])
        let report = try tree.inspection { scan in scans.withLockedValue { $0.append(scan) } }.report()
        #expect(report.problems(in: tree) == ["temporary \(stays.dropFirst(tree.root.count + 1))"])
        #expect(scans.withLockedValue { $0 } == [1, 2, 3, 4, 5])
    }

    // MARK: Unreadable stores

    private func reason(_ configuration: DiskStoreConfiguration? = nil, caller: UInt32 = geteuid()) -> String {
        do {
            _ = try tree.inspection(configuration, caller: caller)
            return ""
        } catch {
            return "\(error)"
        }
    }

    @Test func `a missing store or another format is an error`() throws {
        #expect(reason().contains("state directory \(tree.state) cannot be opened"))
        try tree.makeDirectories(tree.configuration())
        #expect(reason().contains("no store in the cache directory \(tree.cache)"))
        try tree.withStore { try fill($0) }
        let version = URL(fileURLWithPath: "\(tree.cache)/VERSION")
        let right = try Data(contentsOf: version)
        try Data("thumbcached 2\n".utf8).write(to: version)
        #expect(reason().contains("made by a newer thumbcached"))
        for older in ["thumbcached 0\n", "", "something else\n"] {
            try Data(older.utf8).write(to: version)
            #expect(reason().contains("unknown format"), "\(older)")
        }
        try right.write(to: version)
        #expect(reason() == "")
        #expect(reason(caller: geteuid() + 1).contains("inspect it as root or as that user"))
        #expect(reason(caller: 0) == "")
    }

    @Test func `F51: a missing or invalid names.key is an error`() throws {
        try tree.withStore { try fill($0) }
        let path = "\(tree.state)/names.key"
        chmod(path, 0o644)
        #expect(reason().contains("names.key has mode 644 instead of 600"))
        chmod(path, 0o600)
        try plant(path, [UInt8](repeating: 0, count: 56))
        #expect(reason().contains("is not a names.key of this version"))
        try FileManager.default.removeItem(atPath: path)
        #expect(reason().contains("names.key is missing in \(tree.state)"))
    }

    @Test func `F51: with another store's names.key every login is damaged and no image opens`() throws {
        try tree.withStore { try fill($0) }
        let other = try TestTree()
        try other.withStore { _ in }
        let (from, to) = ("\(other.state)/names.key", "\(tree.state)/names.key")
        try FileManager.default.removeItem(atPath: to)
        try FileManager.default.copyItem(atPath: from, toPath: to)
        let report = try tree.inspection().report()
        let kinds = report.findings.map(\.problem)
        #expect(Set(kinds) == [.damagedKey, .imagesWithoutKey])
        #expect(kinds.count == 6)
        #expect(report.users == 0)
        #expect(report.held == Usage())
    }

    @Test(arguments: [(SystemCall.open, EACCES), (.list, EIO), (.read, EIO), (.open, EMFILE), (.statusOfName, EIO)])
    func `F6: unreadable parts are reported`(call: SystemCall, code: Int32) throws {
        try tree.withStore { try fill($0) }
        let system = FaultySystem()
        let inspection = try tree.inspection(system: system)
        system.plan { found, _, _ in found == call ? .fail(code) : nil }
        let report = inspection.report()
        if code == EIO { #expect(report.findings.allSatisfy { $0.problem == .badMedium }) }
        #expect(!(report.findings.isEmpty && report.unread.isEmpty))
        system.plan { call, _, _ in call == .statusOfName ? nil : nil }
        let traces = try? inspection.traces(of: alice.user, uid: nil)
        #expect(traces?.isNothing != true)
    }
}
