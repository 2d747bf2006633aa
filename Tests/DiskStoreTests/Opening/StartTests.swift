import CacheCore
import Foundation
import NIOConcurrencyHelpers
import Testing

@testable import DiskStore

private func failure(_ body: () throws -> Void) -> String? {
    do {
        try body()
        return nil
    } catch {
        return "\(error)"
    }
}

@Test func `F44, F60: a second daemon on the same cache or state does not start and changes nothing`() throws {
    let tree = try TestTree()
    try tree.withStore { _ in
        let files = tree.files()
        let same = failure { _ = try tree.open() }
        #expect(same?.contains("another thumbcached uses the cache directory \(tree.cache)") == true)
        var other = tree.configuration()
        other.cacheDirectory = tree.root + "/other"
        let sharedState = failure { _ = try tree.open(other) }
        #expect(sharedState?.contains("another thumbcached uses the state directory \(tree.state)") == true)
        #expect(tree.files() == (files + [tree.root + "/other/lock"]).sorted())
    }
    #expect(failure { try tree.withStore { _ in } } == nil)
}

@Test func `starts are numbered from 1, and damaged numbers do not repeat`() throws {
    let tree = try TestTree()
    for number: UInt64 in 1...5 { try tree.withStore { #expect($0.epochBase == number << 32) } }
    let path = URL(fileURLWithPath: tree.state + "/starts")
    var bytes = try Data(contentsOf: path)
    // The newer copy is torn. It may have been 5, so 5 is not reused.
    bytes[512 + 9] ^= 1
    try bytes.write(to: path)
    try tree.withStore { #expect($0.epochBase >> 32 == 6) }
    try tree.withStore { #expect($0.epochBase >> 32 == 7) }
    // Nothing is readable: days since 1970.
    try Data([UInt8](repeating: 0xAA, count: 1024)).write(to: path)
    tree.clock.withLockedValue { $0 = 20_000 * 86_400 + 5 }
    try tree.withStore { #expect($0.epochBase >> 32 == 20_000) }
    try Data([1, 2, 3]).write(to: path)
    try tree.withStore { #expect($0.epochBase >> 32 == 20_000) }
    try tree.withStore { #expect($0.epochBase >> 32 == 20_001) }
    try FileManager.default.removeItem(at: path)
    try tree.withStore { #expect($0.epochBase >> 32 == 1) }
}

@Test func `F76: epochs grow from start to start even if a start cannot be recorded`() throws {
    let tree = try TestTree()
    var earlier: UInt64 = 0
    for isReadOnly in [false, true, true, false, true, false] {
        let system = FaultySystem()
        system.setReadOnly(isReadOnly)
        try tree.withStore(system: system) { store in
            // A billion logins, purges and logouts of one uid.
            #expect(store.epochBase > earlier)
            earlier = store.epochBase + (isReadOnly ? 0 : 1_000_000_000)
        }
        tree.clock.withLockedValue { $0 += 1 }
    }
    #expect(earlier < 4 << 32)
}

@Test(arguments: ["wrong size", "damaged", "mode", "link", "directory", "empty"])
func `F51: an invalid names.key stops the start with a reason, and nothing is lost`(how: String) throws {
    let tree = try TestTree()
    try tree.withStore { store in try store.commitLogin(alice, .plain).put(imageKey("bob"), testImage(1)) }
    let path = tree.state + "/names.key"
    let good = try Data(contentsOf: URL(fileURLWithPath: path))
    let expected: String
    switch how {
    case "wrong size":
        try good.dropLast().write(to: URL(fileURLWithPath: path))
        expected = "has 55 bytes instead of 56"
    case "empty":
        try Data().write(to: URL(fileURLWithPath: path))
        expected = "has 0 bytes instead of 56"
    case "damaged":
        var bad = good
        bad[20] ^= 1
        try bad.write(to: URL(fileURLWithPath: path))
        expected = "is damaged"
    case "mode":
        #expect(chmod(path, 0o640) == 0)
        expected = "has mode 640 instead of 600"
    case "link":
        try FileManager.default.moveItem(atPath: path, toPath: tree.root + "/k")
        try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: tree.root + "/k")
        expected = "is not a plain file"
    default:
        try FileManager.default.removeItem(atPath: path)
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
        expected = "is not a plain file"
    }
    let reason = failure { _ = try tree.open() }
    #expect(reason?.contains("\(path) \(expected)") == true, "\(reason ?? "started")")
    try FileManager.default.removeItem(atPath: path)
    try good.write(to: URL(fileURLWithPath: path))
    #expect(chmod(path, 0o600) == 0)
    try tree.withStore { store in
        let generationStore = try #require(try store.load(alice)).generationStore
        #expect(try generationStore.bytes(imageKey("bob")) == testImage(1).content)
    }
}

@Test func `F51: without names.key all keys are destroyed and a new names.key is created`() throws {
    let tree = try TestTree()
    try tree.withStore { store in try store.commitLogin(alice, .plain).put(imageKey("bob"), testImage(1)) }
    try FileManager.default.removeItem(atPath: tree.state + "/names.key")
    try tree.withStore { store in
        #expect(tree.keyFiles.isEmpty)
        #expect(try store.load(alice) == nil)
        #expect(try store.users(of: 1000) == [])
        store.maintain()
        #expect(tree.entries.isEmpty)
        #expect(tree.sessionFiles.isEmpty)
        #expect(tree.files(under: tree.cache + "/trash").isEmpty)
        try store.commitLogin(alice, .plain).put(imageKey("bob"), testImage(2))
    }
    try tree.withStore { store in
        let found = try store.users(of: 1000) == [alice.user]
        #expect(found)
    }
}

@Test func `F51, F70: without names.key, a bad sector does not prevent destroying other key files`() throws {
    let tree = try TestTree()
    try tree.withStore { store in for owner in [alice, bob, carol] { _ = try store.commitLogin(owner, .plain) } }
    try FileManager.default.removeItem(atPath: tree.state + "/names.key")
    let system = FaultySystem()
    // Both attempts at the first file.
    system.plan { call, _, ofKind in call == .write && ofKind <= 2 ? .fail(EIO) : nil }
    let reason = failure { _ = try tree.open(system: system) }
    #expect(reason?.contains("EIO") == true)
    #expect(tree.keyFiles.isEmpty)
    // There was no receipt, and the next start finds no key files.
    try tree.withStore { store in
        let found = try store.users(of: 1000) + store.users(of: 1001)
        #expect(found == [])
    }
}

@Test(arguments: ["short", "flipped", "zeros", "from another user", "from another uid"])
func `F51: a damaged key file logs out its user only`(how: String) throws {
    let tree = try TestTree()
    try tree.withStore { store in
        for owner in [alice, bob, carol] { try store.commitLogin(owner, .plain).put(imageKey("bob"), testImage(1)) }
    }
    let ofUID = tree.files(under: tree.state + "/keys/1000")
    let ofOther = tree.files(under: tree.state + "/keys/1001")
    let path = URL(fileURLWithPath: ofUID[0])
    var bytes = try Data(contentsOf: path)
    switch how {
    case "short": bytes = bytes.dropLast()
    case "flipped": bytes[40] ^= 1
    case "zeros": bytes = Data(count: bytes.count)
    case "from another user": bytes = try Data(contentsOf: URL(fileURLWithPath: ofUID[1]))
    default: bytes = try Data(contentsOf: URL(fileURLWithPath: ofOther[0]))
    }
    try bytes.write(to: path)
    try tree.withStore { store in
        #expect(try store.users(of: 1000).count == 1)
        #expect(try store.users(of: 1001) == [carol.user])
        #expect(!FileManager.default.fileExists(atPath: path.path))
        #expect(store.counters[.damagedLogins] == 1)
        store.maintain()
        #expect(tree.entries.count == 2)
        #expect(tree.sessionFiles.count == 2)
        let generationStore = try #require(try store.load(carol)).generationStore
        #expect(try generationStore.bytes(imageKey("bob")) == testImage(1).content)
    }
}

@Test(arguments: ["missing", "flipped", "short", "from another user"])
func `an invalid session file ends the login durably`(how: String) throws {
    let tree = try TestTree()
    try tree.withStore { store in
        for owner in [alice, bob] { try store.commitLogin(owner, .plain).put(imageKey("bob"), testImage(1)) }
    }
    let path = URL(fileURLWithPath: tree.sessionFiles[0])
    var bytes = try Data(contentsOf: path)
    switch how {
    case "missing": try FileManager.default.removeItem(at: path)
    case "short": try bytes.dropLast().write(to: path)
    case "flipped":
        bytes[25] ^= 1
        try bytes.write(to: path)
    default: try Data(contentsOf: URL(fileURLWithPath: tree.sessionFiles[1])).write(to: path)
    }
    try tree.withStore { store in
        let found = try [alice, bob].filter { try store.load($0) != nil }
        #expect(found.count == 1)
        #expect(tree.keyFiles.count == 1)
    }
}

@Test func `logins with HOLD sessions only end at a restart`() throws {
    let tree = try TestTree()
    let ofConnections = LoginRecord(sessions: [], loggedInAt: 1)
    try tree.withStore { store in
        for owner in [alice, bob, carol] {
            try store.commitLogin(owner, ofConnections).put(imageKey("bob"), testImage(1))
        }
        store.maintain()
        #expect(try store.load(alice) != nil)
        #expect(tree.keyFiles.count == 3)
    }
    try tree.withStore { store in
        #expect(try store.load(alice) == nil)
        #expect(tree.keyFiles.count == 2)
        // A login renewed before the sweep is not swept.
        try store.commitLogin(bob, ofConnections).put(imageKey("eve"), testImage(2))
        store.maintain()
        #expect(tree.keyFiles.count == 1)
        #expect(try store.users(of: 1000) == [bob.user])
        #expect(try store.users(of: 1001) == [])
        #expect(tree.entries.count == 1)
        #expect(tree.sessionFiles.count == 1)
    }
}

@Test func `F90: a newer format is rejected; images of an unknown format are discarded and logins kept`() throws {
    let tree = try TestTree()
    try tree.withStore { store in try store.commitLogin(alice, .plain).put(imageKey("bob"), testImage(1)) }
    let path = URL(fileURLWithPath: tree.cache + "/VERSION")
    #expect(try String(contentsOf: path, encoding: .utf8) == "thumbcached 1\n")
    try Data("thumbcached 2\n".utf8).write(to: path)
    let reason = failure { _ = try tree.open() }
    #expect(reason?.contains("has format 2, made by a newer thumbcached") == true)
    #expect(tree.entries.count == 1)
    for unknown in ["thumbcached 0\n", "", "something else", "thumbcached -1\n"] {
        try Data(unknown.utf8).write(to: path)
        try tree.withStore { store in
            let generationStore = try #require(try store.load(alice)).generationStore
            #expect(try generationStore.bytes(imageKey("bob")) == nil)
            try generationStore.put(imageKey("bob"), testImage(1))
            store.maintain()
            #expect(tree.entries.count == 1)
            #expect(tree.files(under: tree.cache + "/trash").isEmpty)
        }
    }
}

/// An older program ends logins in an unknown format as damaged, unless it refuses the whole store.
@Test func `F90: a format of a login's files belongs to one format of the store`() throws {
    let tree = try TestTree()
    try tree.withStore { store in _ = try store.commitLogin(alice, .plain) }
    func formatByte(_ path: String) throws -> UInt8 { try Data(contentsOf: URL(fileURLWithPath: path))[7] }
    let version = try String(contentsOfFile: tree.cache + "/VERSION", encoding: .utf8)
    let record = try SessionRecord(user: alice.user, login: .plain).encoded().bytes
    let formats = [
        try formatByte(tree.state + "/names.key"), try formatByte(try #require(tree.keyFiles.first)),
        try formatByte(try #require(tree.sessionFiles.first)), try #require(record.first),
    ]
    #expect(formats == [1, 1, 1, 4] && version == "thumbcached 1\n", "increase FormatVersion.current, too")
}

@Test func `F52: with keys in the runtime directory a reboot logs out all users`() throws {
    let tree = try TestTree()
    let configuration = tree.configuration(keys: .runtime)
    try tree.withStore(configuration) { store in
        try store.commitLogin(alice, .plain).put(imageKey("bob"), testImage(1))
        #expect(tree.files(under: tree.state + "/keys").isEmpty)
        #expect(!FileManager.default.fileExists(atPath: tree.state + "/names.key"))
    }
    try tree.withStore(configuration) { store in
        let found = try store.users(of: 1000) == [alice.user]
        #expect(found)
    }
    try FileManager.default.removeItem(atPath: tree.runtime)
    try tree.withStore(configuration) { store in
        try #require(try store.load(alice) == nil)
        store.maintain()
        #expect(tree.entries.isEmpty)
        #expect(tree.sessionFiles.isEmpty)
    }
}

@Test(arguments: [DiskStoreConfiguration.KeyStorage.disk, .runtime])
func `F51: keys in a directory that is no longer configured are destroyed`(first: DiskStoreConfiguration.KeyStorage)
    throws
{
    let tree = try TestTree()
    let second: DiskStoreConfiguration.KeyStorage = first == .disk ? .runtime : .disk
    try tree.withStore(tree.configuration(keys: first)) { store in
        try store.commitLogin(alice, .plain).put(imageKey("bob"), testImage(1))
    }
    let keys = tree.files(under: (first == .disk ? tree.state : tree.runtime) + "/keys")
        .filter { !$0.hasSuffix("/reserve") }
    try #require(keys.count == 1)
    try tree.withStore(tree.configuration(keys: second)) { store in
        // Before the sweep.
        #expect(keys.allSatisfy { !FileManager.default.fileExists(atPath: $0) })
        try #require(try store.load(alice) == nil)
        store.maintain()
        #expect(tree.entries.isEmpty)
    }
    try tree.withStore(tree.configuration(keys: first)) { store in
        let found = try store.load(alice) == nil
        #expect(found)
    }
}

@Test func `a directory that is writable for others or not absolute is rejected`() throws {
    let tree = try TestTree()
    try FileManager.default.createDirectory(atPath: tree.state, withIntermediateDirectories: true)
    #expect(chmod(tree.state, 0o777) == 0)
    let reason = failure { _ = try tree.open() }
    #expect(reason?.contains("the state directory \(tree.state) has mode 777, writable for others") == true)
    var relative = tree.configuration()
    relative.cacheDirectory = "cache"
    #expect(failure { _ = try tree.open(relative) } == "the cache directory must be an absolute path, not \"cache\"")
}

@Test func `all files are accessible to their owner only`() throws {
    let tree = try TestTree()
    try tree.withStore { store in
        try store.commitLogin(alice, .plain).put(imageKey("bob"), testImage(1))
        let all = try #require(FileManager.default.enumerator(atPath: tree.root)?.allObjects as? [String])
        for path in all {
            var status = stat()
            #expect(lstat(tree.root + "/" + path, &status) == 0)
            let isDirectory = status.st_mode & S_IFMT == S_IFDIR
            #expect(status.st_mode & 0o7777 == (isDirectory ? 0o700 : 0o600), "\(path)")
        }
        #expect(all.count > 10)
    }
}
