import CacheCore
import DiskStore
import Foundation
import LinuxSupport
import NIOConcurrencyHelpers
import Testing

/// Records real random bytes.
private final class RememberedRandom: RandomSource {
    private let drawn = NIOLockedValueBox<[[UInt8]]>([])

    /// All results with the length of a key.
    var keys: [[UInt8]] { drawn.withLockedValue { $0.filter { $0.count == 32 } } }

    func fill(_ buffer: UnsafeMutableRawBufferPointer) throws {
        try SecureRandom().fill(buffer)
        drawn.withLockedValue { $0.append(Array(buffer)) }
    }
}

@Test func `I11: no id, URL, token, image or key is readable on disk while users are logged in`() throws {
    let tree = try TestTree()
    let random = RememberedRandom()
    let store = try tree.open(random: random)
    defer { store.shutdown() }
    let record = LoginRecord(
        sessions: [OpaqueID("session-of-alice")], origin: "origin-name", token: Secret(Array("token-of-alice".utf8)),
        loggedInAt: 1_700_000_000)
    let generationStore = try store.commitLogin(alice, record)
    try generationStore.put(imageKey("profile-of-bob", 64), testImage(1, url: "https://example.org/profile-of-bob"))
    try generationStore.put(imageKey("profile-of-bob"), testImage(2))
    try store.commitSessions(alice, record)
    store.maintain()

    var secrets = [
        "alice@example.org", "session-of-alice", "origin-name", "token-of-alice", "profile-of-bob", "https:",
    ]
    .map { Array($0.utf8) }
    secrets += [testImage(1), testImage(2)].map { Array($0.content[100..<116]) }
    // names.key, image key and session key, each only in its own file.
    #expect(random.keys.count == 3)
    let keyFiles = tree.keyFiles + [tree.state + "/names.key"]
    let all = tree.files()
    #expect(all.count == 10, "\(all)")
    for path in all {
        let bytes = try Data(contentsOf: URL(fileURLWithPath: path))
        for secret in secrets {
            #expect(bytes.range(of: Data(secret)) == nil, "\(path)")
            #expect(Data(path.utf8).range(of: Data(secret)) == nil)
        }
        for key in random.keys where !keyFiles.contains(path) {
            for part in [key[..<16], key[16...]] { #expect(bytes.range(of: Data(part)) == nil, "\(path)") }
        }
    }
}

@Test func `I11: no file contains the keys of a purged or ended generation`() throws {
    let tree = try TestTree()
    let random = RememberedRandom()
    let store = try tree.open(random: random)
    defer { store.shutdown() }
    let generationStore = try store.commitLogin(alice, .plain)
    try generationStore.put(imageKey("bob"), testImage(1))
    generationStore.close()
    let purged = random.keys[1]
    _ = try store.commitPurge(alice)
    func isAnywhere(_ key: [UInt8]) throws -> Bool {
        try tree.files().contains { try Data(contentsOf: URL(fileURLWithPath: $0)).range(of: Data(key)) != nil }
    }
    #expect(try !isAnywhere(purged))
    #expect(try isAnywhere(random.keys[2]) && isAnywhere(random.keys[3]))
    try store.commitLogout(alice)
    #expect(try !isAnywhere(random.keys[2]) && !isAnywhere(random.keys[3]))
}

@Test func `I11: errors and descriptions contain no secret`() throws {
    let tree = try TestTree()
    let system = FaultySystem()
    try tree.withStore(system: system) { store in
        system.plan { call, _, _ in call == .rename ? .fail(EIO) : nil }
        let record = LoginRecord(sessions: [], token: Secret(Array("token".utf8)), loggedInAt: 0)
        #expect(throws: StoreError.failed("logging in: renameat: EIO (Input/output error)")) {
            _ = try store.commitLogin(alice, record)
        }
    }
}
