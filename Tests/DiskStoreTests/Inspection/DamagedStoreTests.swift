import CacheCore
import DiskStore
import Foundation
import Glibc
import Testing

/// One kind of damage to a store, and the findings expected from an inspection.
private struct Damage: Sendable, CustomTestStringConvertible {
    let testDescription: String
    /// Causes the damage and returns the expected findings: problem and path below the tree's root.
    let act: @Sendable (TestTree) throws -> Set<String>

    init(_ description: String, _ act: @escaping @Sendable (TestTree) throws -> Set<String>) {
        (testDescription, self.act) = (description, act)
    }
}

extension TestTree {
    fileprivate func short(_ path: String) -> String { String(path.dropFirst(root.count + 1)) }

    fileprivate func change(_ path: String, _ body: (inout [UInt8]) -> Void) throws {
        // In place, because replacing the file could change its mode.
        let url = URL(fileURLWithPath: path)
        var bytes = [UInt8](try Data(contentsOf: url))
        body(&bytes)
        let file = try FileHandle(forWritingTo: url)
        try file.truncate(atOffset: 0)
        try file.write(contentsOf: bytes)
        try file.close()
    }

    fileprivate func plant(_ path: String, _ bytes: [UInt8] = [1]) throws {
        try Data(bytes).write(to: URL(fileURLWithPath: path))
        chmod(path, 0o600)
    }

    /// The directory of the only generation.
    fileprivate var generation: String { get throws { parent(parent(try #require(entries.first))) } }
    fileprivate func parent(_ path: String) -> String { URL(fileURLWithPath: path).deletingLastPathComponent().path }
    fileprivate var key: String { get throws { try #require(keyFiles.first) } }
    fileprivate var session: String { get throws { try #require(sessionFiles.first) } }
}

private let damages = [
    Damage("F10: a truncated image") { tree in
        let path = try #require(tree.entries.first)
        try tree.change(path) { $0.removeLast() }
        return ["torn \(tree.short(path))"]
    },
    Damage("F10: an empty image file") { tree in
        let path = try #require(tree.entries.first)
        try tree.change(path) { $0 = [] }
        return ["torn \(tree.short(path))"]
    },
    Damage("F10: an image of 4 GiB by its header, in a sparse file") { tree in
        let path = try #require(tree.entries.first)
        try tree.change(path) { bytes in for index in 8..<12 { bytes[index] = 255 } }
        let file = try FileHandle(forWritingTo: URL(fileURLWithPath: path))
        let record = try Data(contentsOf: URL(fileURLWithPath: path))[4..<8].reduce(0) { $0 << 8 | UInt64($1) }
        try file.truncate(atOffset: UInt64(UInt32.max) + record + 40)
        try file.close()
        return ["torn \(tree.short(path))"]
    },
    Damage("F11: an image with a flipped bit") { tree in
        let path = try #require(tree.entries.last)
        try tree.change(path) { $0[$0.count / 2] ^= 4 }
        return ["altered \(tree.short(path))"]
    },
    Damage("F12: two images swapped") { tree in
        let (one, other) = (tree.entries[0], tree.entries[1])
        try FileManager.default.moveItem(atPath: one, toPath: tree.root + "/aside")
        try FileManager.default.moveItem(atPath: other, toPath: one)
        try FileManager.default.moveItem(atPath: tree.root + "/aside", toPath: other)
        return ["altered \(tree.short(one))", "altered \(tree.short(other))"]
    },
    Damage("F12: an image in the wrong bucket") { tree in
        let path = try #require(tree.entries.first)
        let bucket = try tree.generation + "/" + (path.contains("/00/") ? "01" : "00")
        mkdir(bucket, 0o700)
        let moved = bucket + "/" + URL(fileURLWithPath: path).lastPathComponent
        try FileManager.default.moveItem(atPath: path, toPath: moved)
        return ["misplaced \(tree.short(moved))"]
    },
    Damage("F26: an image with a second hard link") { tree in
        let path = try #require(tree.entries.first)
        #expect(link(path, tree.root + "/second") == 0)
        return ["linked \(tree.short(path))"]
    },
    Damage("F24: a link in place of an image") { tree in
        let path = try #require(tree.entries.first)
        try FileManager.default.moveItem(atPath: path, toPath: tree.root + "/elsewhere")
        #expect(symlink(tree.root + "/elsewhere", path) == 0)
        return ["foreign \(tree.short(path))"]
    },
    Damage("F24: a link in place of a user's directory") { tree in
        let path = try tree.generation
        try FileManager.default.moveItem(atPath: path, toPath: tree.root + "/elsewhere")
        #expect(symlink(tree.root + "/elsewhere", path) == 0)
        return ["foreign \(tree.short(path))"]
    },
    Damage("F24: a link in place of the users directory") { tree in
        try FileManager.default.moveItem(atPath: tree.cache + "/users", toPath: tree.root + "/elsewhere")
        #expect(symlink(tree.root + "/elsewhere", tree.cache + "/users") == 0)
        return ["foreign cache/users"]
    },
    Damage("F26: FIFOs in place of an image and a key file") { tree in
        let (path, key) = (try #require(tree.entries.first), try tree.key)
        unlink(path)
        #expect(mkfifo(path, 0o600) == 0)
        let fifo = tree.parent(key) + "/" + String(repeating: "0", count: 64)
        #expect(mkfifo(fifo, 0o600) == 0)
        return ["foreign \(tree.short(path))", "foreign \(tree.short(fifo))"]
    },
    Damage("F26: foreign files at every place") { tree in
        let places = [
            tree.cache, tree.state, tree.cache + "/users", tree.parent(try tree.generation), try tree.generation,
            tree.parent(try #require(tree.entries.first)), tree.state + "/keys", tree.parent(try tree.key),
            tree.state + "/sessions", tree.parent(try tree.session),
        ]
        for place in places {
            try tree.plant(place + "/stranger")
            #expect(mkdir(place + "/007", 0o700) == 0)
        }
        return Set(places.flatMap { ["foreign \(tree.short($0))/stranger", "foreign \(tree.short($0))/007"] })
    },
    Damage("F1: temporary files left by a kill") { tree in
        let left = [
            try tree.generation + "/tmp.0123456789abcdef.1", try tree.key + ".tmp", try tree.session + ".tmp",
            tree.parent(try #require(tree.entries.first)) + "/tmp.0123456789abcdef.2",
            tree.state + "/keys/tmp.0123456789abcdef.3", tree.state + "/starts.tmp", tree.cache + "/VERSION.tmp",
        ]
        for path in left { try tree.plant(path) }
        return Set(left.map { "temporary \(tree.short($0))" })
    },
    Damage("F51: a missing key file") { tree in
        let (key, session, generation) = (try tree.key, try tree.session, try tree.generation)
        unlink(key)
        return ["session-without-key \(tree.short(session))", "images-without-key \(tree.short(generation))"]
    },
    Damage("F51: a damaged key file") { tree in
        let (key, generation) = (try tree.key, try tree.generation)
        try tree.change(key) { $0[30] ^= 1 }
        return ["damaged-key \(tree.short(key))", "images-without-key \(tree.short(generation))"]
    },
    Damage("F51: a key file of another uid") { tree in
        let other = tree.state + "/keys/77"
        mkdir(other, 0o700)
        let copy = other + "/" + URL(fileURLWithPath: try tree.key).lastPathComponent
        try FileManager.default.copyItem(atPath: try tree.key, toPath: copy)
        return ["damaged-key \(tree.short(copy))"]
    },
    Damage("I2: images of a purged generation") { tree in
        let old = String(try tree.generation.dropLast(32)) + String(repeating: "0", count: 32)
        try FileManager.default.copyItem(atPath: try tree.generation, toPath: old)
        return ["images-without-key \(tree.short(old))"]
    },
    Damage("I2: images of a user who is not logged in") { tree in
        let uid = tree.cache + "/users/77"
        mkdir(uid, 0o700)
        let copy = uid + "/" + URL(fileURLWithPath: try tree.generation).lastPathComponent
        try FileManager.default.copyItem(atPath: try tree.generation, toPath: copy)
        return ["images-without-key \(tree.short(copy))"]
    },
    Damage("a missing session file") { tree in
        let key = try tree.key
        unlink(try tree.session)
        return ["key-without-session \(tree.short(key))"]
    },
    Damage("F11: a session file with a flipped bit") { tree in
        let session = try tree.session
        try tree.change(session) { $0[40] ^= 1 }
        return ["damaged-session \(tree.short(session))"]
    },
    Damage("a damaged counter of starts") { tree in
        try tree.change(tree.state + "/starts") { $0[520] ^= 1 }
        return ["damaged-counter state/starts"]
    },
    Damage("modes that grant access to others") { tree in
        let (path, key) = (try #require(tree.entries.first), try tree.key)
        for path in [path, key] { chmod(path, 0o640) }
        chmod(try tree.generation, 0o755)
        chmod(tree.cache, 0o777)
        return [
            "wrong-mode \(tree.short(path))", "wrong-mode \(tree.short(key))",
            "wrong-mode \(tree.short(try tree.generation))", "wrong-mode cache",
        ]
    },
]

@Suite struct DamagedStoreTests {
    private static func tree() throws -> TestTree {
        let tree = try TestTree()
        try tree.withStore { store in
            let generationStore = try store.commitLogin(alice, .plain)
            for profile in 0..<6 { try generationStore.put(imageKey("\(profile)", 64), testImage(UInt8(profile))) }
        }
        return tree
    }

    @Test(arguments: damages)
    fileprivate func `I5, F1, F10, F11, F12, F24, F26, F51: an inspection finds exactly the damage`(
        damage: Damage
    ) throws {
        let tree = try Self.tree()
        let expected = try damage.act(tree)
        let report = try tree.inspection().report()
        #expect(report.problems(in: tree) == expected)
        #expect(report.unread == [])
        // An inspection changes nothing, so a second one has the same findings.
        #expect(try tree.inspection().report().problems(in: tree) == expected)
        for finding in report.findings { #expect(!finding.what.contains("alice") && !finding.path.contains("alice")) }
    }

    @Test func `the next start repairs what the remedies promise`() throws {
        let repaired = ["F1: ", "F51: a missing key file", "F51: a damaged key file", "a missing session file"]
        for damage in damages where repaired.contains(where: damage.testDescription.hasPrefix) {
            let tree = try Self.tree()
            _ = try damage.act(tree)
            try tree.withStore { $0.maintain() }
            let left = try tree.inspection().report().problems(in: tree)
            // Temporary files next to a file remain if the start did not have to write that file.
            let planted: Set = ["temporary cache/VERSION.tmp", "temporary state/starts.tmp"]
            #expect(left.subtracting(planted) == [], "\(damage.testDescription)")
        }
    }

    @Test(.enabled(if: geteuid() == 0, "requires root"))
    func `files of another owner are found`() throws {
        let tree = try Self.tree()
        let path = try #require(tree.entries.first)
        chown(path, 12345, 12345)
        #expect(try tree.inspection().report().problems(in: tree) == ["wrong-owner \(tree.short(path))"])
    }

    @Test func `trash and pending-logout files are no findings`() throws {
        let tree = try Self.tree()
        var configuration = tree.configuration()
        configuration.pendingLogouts = tree.root + "/pending"
        mkdir(tree.root + "/pending", 0o750)
        for digit in ["a", "b"] {
            try tree.plant("\(tree.root)/pending/1000.\(String(repeating: digit, count: 32))", [])
        }
        try FileManager.default.createDirectory(
            atPath: tree.cache + "/trash/one/two/three/four/five", withIntermediateDirectories: true)
        try tree.plant(tree.cache + "/trash/one/two/file")
        try tree.plant(tree.cache + "/trash/one/two/three/four/five/too deep to be the store's")
        var report = try tree.inspection(configuration).report()
        #expect(report.findings == [])
        #expect(report.trash.images == 1)
        #expect(report.pendingLogouts == [1000: 2])

        try tree.plant(tree.root + "/pending/stranger", [])
        #expect(try tree.inspection(configuration).report().problems(in: tree) == ["foreign pending/stranger"])
        chmod(tree.root + "/pending", 0o777)
        report = try tree.inspection(configuration).report()
        #expect(report.problems(in: tree) == ["untrusted-pending-logouts pending"])
    }

    @Test func `F51: keys in an unused directory are found`() throws {
        let tree = try Self.tree()
        let key = tree.short(try tree.key)
        try tree.withStore(tree.configuration(keys: .runtime)) { _ in }
        // The start destroyed them; restore them.
        try tree.plant(tree.state + "/names.key")
        mkdir(tree.parent(tree.root + "/" + key), 0o700)
        try tree.plant(tree.root + "/" + key)
        let report = try tree.inspection(tree.configuration(keys: .runtime)).report()
        #expect(report.problems(in: tree).isSuperset(of: ["foreign state/names.key", "foreign \(key)"]))
    }
}
