import CacheCore
import DiskStore
import Foundation
import Glibc
import NIOConcurrencyHelpers
import Testing

/// What an inspection says of stores that nobody harmed, and what it never does.
@Suite struct StoreInspectionTests {
    private let tree: TestTree

    init() throws { tree = try TestTree() }

    /// Three log-ins and some images, what a purge and a log-out leave in the trash, and a marker.
    private func fill(_ store: DiskStore) throws {
        for (number, owner) in [alice, bob, carol].enumerated() {
            let generationStore = try store.commitLogin(owner, .plain)
            for profile in 0..<20 {
                try generationStore.put(imageKey("\(profile)", 64), picture(UInt8(number), count: 3_000))
            }
            try generationStore.put(imageKey("0", 64), picture(9, url: "https://example.org/9"))
        }
        let generationStore = try #require(try store.load(bob)).generationStore
        generationStore.close()
        let renewed = try store.commitPurge(bob)
        generationStore.discard()
        try renewed.put(imageKey("after", 0), picture(1))
        try store.commitSessions(carol, .plain)
    }

    @Test(arguments: DiskStoreConfiguration.KeyStorage.allCases)
    func `I5: a whole store is whole, open or not, and what it holds is what its daemon counts`(
        keys: DiskStoreConfiguration.KeyStorage
    ) throws {
        let configuration = tree.configuration(keys: keys)
        var total = Usage()
        let inspect = {
            let report = try tree.inspection(configuration) { _ in Issue.record("nothing is to be looked at again") }
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
        // Both kinds of keys may have lain in a directory that others use, too.
        if keys == .runtime { try plant("\(tree.runtime)/socket") }
        _ = try inspect()
        #expect(total.images == 41)
    }

    @Test func `directories that lie in each other, or are one, are no strangers to each other`() throws {
        for (cache, state, pending) in [("", "", "pending"), ("", "/deep/state", "deep/pending"), ("/c", "", "c/p")] {
            let tree = try TestTree()
            var configuration = tree.configuration()
            configuration.cacheDirectory = tree.root + "/all" + cache
            configuration.stateDirectory = tree.root + "/all" + state
            configuration.pendingLogouts = tree.root + "/all/" + pending
            try tree.withStore(configuration) { store in
                try store.commitLogin(alice, .plain).put(imageKey("bob"), picture(1))
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

    @Test func `nothing is changed by a look, not even a time`() throws {
        try tree.withStore { store in
            try fill(store)
            let before = try tree.everything()
            _ = try tree.inspection().report()
            _ = try tree.inspection().traces(of: alice.user, uid: nil)
            #expect(try tree.everything() == before)
        }
    }

    @Test func `F24: a look makes no call that changes or locks anything`() throws {
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
        #expect(system.descriptors <= 3, "only the directories that were named stay open")
        // What would write does not even reach the machine.
        for purpose in [OpenPurpose.creating, .overwriting, .keeping] {
            #expect(throws: (any Error).self) {
                try ReadOnlyFileSystem().open(FileName("\(tree.cache)/VERSION"), in: AT_FDCWD, for: purpose)
            }
        }
    }

    // MARK: Looks behind the first

    private func plant(_ path: String, _ bytes: [UInt8] = [1, 2, 3]) throws {
        try Data(bytes).write(to: URL(fileURLWithPath: path))
        chmod(path, 0o600)
    }

    @Test func `what is gone or another at the next look is no finding`() throws {
        try tree.withStore { try fill($0) }
        let generation = URL(fileURLWithPath: try #require(tree.entries.first)).deletingLastPathComponent()
            .deletingLastPathComponent().path
        let (gone, replaced) = ("\(generation)/tmp.0123456789abcdef.7", "\(try #require(tree.keyFiles.first)).tmp")
        try plant(gone)
        try plant(replaced)
        let looks = NIOLockedValueBox<[Int]>([])
        let report = try tree.inspection { look in
            looks.withLockedValue { $0.append(look) }
            expectSuccess {
                if look == 1 { try FileManager.default.removeItem(atPath: gone) }
                // The next write to the same name: another file, or the same number with another time.
                try plant(replaced, [UInt8](repeating: 1, count: look))
            }
        }.report()
        #expect(report.problems(in: tree) == [])
        #expect(looks.withLockedValue { $0 } == [1], "nothing is left to look at behind the second")
    }

    @Test func `what stays is a finding behind five more looks, and no more`() throws {
        try tree.withStore { try fill($0) }
        let stays = try #require(tree.keyFiles.first) + ".tmp"
        try plant(stays)
        let looks = NIOLockedValueBox<[Int]>([])
        let report = try tree.inspection { look in looks.withLockedValue { $0.append(look) } }.report()
        #expect(report.problems(in: tree) == ["temporary \(stays.dropFirst(tree.root.count + 1))"])
        #expect(looks.withLockedValue { $0 } == [1, 2, 3, 4, 5])
    }

    // MARK: What cannot be looked at

    private func reason(_ configuration: DiskStoreConfiguration? = nil, caller: UInt32 = geteuid()) -> String {
        do {
            _ = try tree.inspection(configuration, caller: caller)
            return ""
        } catch {
            return "\(error)"
        }
    }

    @Test func `where there is no store of this format, it says so and finds nothing`() throws {
        #expect(reason().contains("state directory \(tree.state) cannot be opened"))
        try tree.makeDirectories(tree.configuration())
        #expect(reason().contains("there is no store in the cache directory \(tree.cache)"))
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
        #expect(reason(caller: geteuid() + 1).contains("look at it as root, or as that user"))
        #expect(reason(caller: 0) == "")
    }

    @Test func `F51: without the right key of names nothing is said of anybody`() throws {
        try tree.withStore { try fill($0) }
        let path = "\(tree.state)/names.key"
        chmod(path, 0o644)
        #expect(reason().contains("names.key has mode 644 instead of 600"))
        chmod(path, 0o600)
        try plant(path, [UInt8](repeating: 0, count: 56))
        #expect(reason().contains("is no names.key of this version"))
        try FileManager.default.removeItem(atPath: path)
        #expect(reason().contains("there is no names.key in \(tree.state)"))
    }

    @Test func `F51: with the key of another store every log-in is damaged, and no image opens`() throws {
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
    func `F6: what cannot be read is told, and is never taken for whole`(call: SystemCall, code: Int32) throws {
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
