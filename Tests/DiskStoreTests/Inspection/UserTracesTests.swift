import CacheCore
import DiskStore
import Foundation
import Glibc
import Testing

/// Traces of a user before and after a logout.
@Suite struct UserTracesTests {
    private let tree: TestTree
    private let configuration: DiskStoreConfiguration

    init() throws {
        tree = try TestTree()
        var configuration = tree.configuration()
        configuration.pendingLogouts = tree.root + "/pending"
        self.configuration = configuration
    }

    private func traces(of owner: Owner, anyUID: Bool = false) throws -> UserTraces {
        try tree.inspection(configuration).traces(of: owner.user, uid: anyUID ? nil : owner.uid)
    }

    private func kinds(_ traces: UserTraces) -> [String] { traces.traces.map(\.kind.rawValue).sorted() }

    @Test func `I2: a login has traces, and after the logout there are none`() throws {
        try tree.withStore(configuration) { store in
            #expect(try traces(of: alice, anyUID: true).isNothing)
            for owner in [alice, bob, Owner(uid: 1001, user: alice.user)] {
                let generationStore = try store.commitLogin(owner, .plain)
                for number in 0..<5 { try generationStore.put(imageKey("\(number)"), testImage(1)) }
                generationStore.close()
            }
            #expect(kinds(try traces(of: alice)) == ["images", "key", "session"])
            #expect(try traces(of: alice).held.images == 5)
            let uids = try traces(of: alice, anyUID: true).traces.map(\.uid)
            #expect(uids.sorted() == [1000, 1000, 1000, 1001, 1001, 1001])

            try store.commitLogout(alice)
            try store.load(alice)?.generationStore.discard()
            store.maintain()
            #expect(try traces(of: Owner(uid: 1001, user: alice.user)).traces.count == 3)
            #expect(try traces(of: bob).traces.count == 3)
            try store.commitLogout(Owner(uid: 1001, user: alice.user))
        }
        // The store above did not discard its open generation; the next start does.
        try tree.withStore(configuration) { $0.maintain() }
        #expect(try traces(of: alice).isNothing)
        #expect(try traces(of: alice, anyUID: true).isNothing)
        #expect(try traces(of: bob, anyUID: true).traces.count == 3)
    }

    @Test func `F1: temporary files are not counted as images`() throws {
        try tree.withStore(configuration) { try $0.commitLogin(alice, .plain).put(imageKey("bob"), testImage(1)) }
        let bucket = URL(fileURLWithPath: try #require(tree.entries.first)).deletingLastPathComponent()
        #expect(FileManager.default.createFile(atPath: bucket.path + "/tmp.0123456789abcdef.1", contents: nil))
        #expect(try traces(of: alice).held.images == 1)
    }

    @Test func `I4: a logout killed at any call leaves a key only if there was no receipt`() throws {
        for call in 1...100 {
            let tree = try TestTree()
            let system = FaultySystem()
            let store = try tree.open(system: system)
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob"), testImage(1))
            generationStore.close()
            system.plan { _, number, _ in number == call ? .die : nil }
            var hasReceipt = true
            do { try store.commitLogout(alice) } catch { hasReceipt = false }
            let wasReached = system.calls >= call
            store.shutdown()
            let found = try tree.inspection().traces(of: alice.user, uid: nil)
            if hasReceipt { #expect(!found.traces.contains { [.key, .temporary].contains($0.kind) }, "call \(call)") }
            // A start completes the logout, unless the key is left: the user is still logged in then.
            try tree.withStore { $0.maintain() }
            let later = try tree.inspection().traces(of: alice.user, uid: nil)
            #expect([0, 3].contains(later.traces.count), "call \(call)")
            if hasReceipt { #expect(later.isNothing, "call \(call)") }
            #expect(try tree.inspection().report().findings == [], "call \(call)")
            if !wasReached { return }
        }
        Issue.record("the logout did not complete within a hundred calls")
    }

    @Test func `I4: files with the user's name are found anywhere, and pending logouts are counted`() throws {
        var name = ""
        try tree.withStore(configuration) { store in
            try store.commitLogin(alice, .plain).close()
            name = URL(fileURLWithPath: try #require(tree.keyFiles.first)).lastPathComponent
            try store.commitLogout(alice)
        }
        #expect(try traces(of: alice).isNothing)
        let generation = "\(name).\(String(repeating: "0", count: 32))"
        for place in ["keys/1000/\(name)", "sessions/1000/\(name).tmp", "keys/77/\(name)"] {
            let path = "\(tree.state)/\(place)"
            try FileManager.default.createDirectory(
                atPath: URL(fileURLWithPath: path).deletingLastPathComponent().path, withIntermediateDirectories: true)
            try Data().write(to: URL(fileURLWithPath: path))
            #expect(try traces(of: alice).traces.map(\.path) == [path])
            try FileManager.default.removeItem(atPath: path)
        }
        for place in ["users/1000/\(generation)", "trash/\(generation)", "trash/0123/\(generation)"] {
            let path = "\(tree.cache)/\(place)"
            try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
            #expect(try traces(of: alice).traces.map(\.path) == [path])
            #expect(try traces(of: bob).traces == [])
            try FileManager.default.removeItem(atPath: path)
        }
        #expect(try traces(of: alice).isNothing)
        mkdir(tree.root + "/pending", 0o750)
        try Data().write(
            to: URL(fileURLWithPath: "\(tree.root)/pending/1000.\(String(repeating: "a", count: 32))"))
        #expect(try traces(of: alice).pendingLogouts == [1000: 1])
        #expect(try !traces(of: alice).isNothing)
        #expect(try traces(of: carol).isNothing, "the pending logout of another uid is reported")
    }

    @Test func `F51: with files of another names.key, absence of traces is not reported as proof`() throws {
        try tree.withStore(configuration) { store in
            for owner in [alice, bob] {
                let generationStore = try store.commitLogin(owner, .plain)
                try generationStore.put(imageKey("bob"), testImage(1))
                generationStore.close()
            }
        }
        let other = try TestTree()
        try other.withStore { try $0.commitLogin(carol, .plain).close() }
        // The cache of one store with the logins of another.
        var mixed = configuration
        mixed.stateDirectory = other.state
        let found = try tree.inspection(mixed).traces(of: alice.user, uid: nil)
        #expect(found.traces == [])
        #expect(found.unread.count == 2)
        #expect(!found.isNothing)
        // A damaged file is not foreign if another file matches.
        let key = URL(fileURLWithPath: try #require(tree.keyFiles.first))
        try Data(count: 120).write(to: key)
        #expect(try traces(of: carol, anyUID: true).isNothing)
    }

    @Test(arguments: ["state/keys", "state/keys/1000", "state/sessions/1000", "cache/users", "cache/users/1000"])
    func `F24: a link is not followed, and its part is reported as unread`(place: String) throws {
        try tree.withStore(configuration) { store in
            try store.commitLogin(alice, .plain).put(imageKey("bob"), testImage(1))
        }
        let path = "\(tree.root)/\(place)"
        try FileManager.default.moveItem(atPath: path, toPath: tree.root + "/elsewhere")
        try #require(symlink(tree.root + "/elsewhere", path) == 0)
        let found = try traces(of: bob, anyUID: true)
        #expect(found.traces == [])
        #expect(found.unread.map(\.path) == [path])
        #expect(!found.isNothing)
    }

    @Test func `I3: images that move to the trash just after the receipt are no trace`() throws {
        let store = try tree.open(configuration)
        defer { store.shutdown() }
        let generationStore = try store.commitLogin(alice, .plain)
        try generationStore.put(imageKey("bob"), testImage(1))
        generationStore.close()
        try store.commitLogout(alice)
        let inspection = try tree.inspection(configuration) { scan in if scan == 2 { generationStore.discard() } }
        let found = try inspection.traces(of: alice.user, uid: nil)
        #expect(found.isNothing)
        #expect(found.trash.images == 1)
    }
}
