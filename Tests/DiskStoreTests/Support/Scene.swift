import CacheCore
import Logging
import Testing

@testable import DiskStore

/// An operation of the store, and the permitted states after an interruption.
struct Scene: CustomTestStringConvertible, Sendable {
    /// The progress of the operation and the state of the disk.
    struct Outcome {
        /// Whether the receipt was given.
        var isDone: Bool
        /// Whether images may be missing, because images are not durable.
        var mayLoseImages = false
        /// The point of interruption, for messages.
        let what: Comment

        /// Whether the image is one of these, or permissibly missing.
        func allows(_ found: [UInt8]?, _ allowed: UInt8?...) -> Bool {
            allowed.contains { $0.map { testImage($0).content } == found } || mayLoseImages && found == nil
        }
    }

    let testDescription: String
    /// Quota of each user in bytes.
    var userQuota = 64 << 20
    /// Whether the operation ends all logins.
    var endsAllLogins = false
    /// Whether the operation is background work, which the next start may complete.
    var isMaintenance = false
    /// Whether the operation only reads: images on bad sectors are removed.
    var isRead = false
    /// Prepares a new store before the operation.
    var before: @Sendable (DiskStore) throws -> Void = logInAlice
    /// Returns the generation store that the operation uses.
    var prepare: @Sendable (DiskStore) throws -> (any GenerationStore)? = { try $0.load(alice)?.generationStore }
    /// The operation. Throws if it fails or dies; calls `receipt` when it gives its receipt.
    let operation: @Sendable (DiskStore, (any GenerationStore)?, _ receipt: () -> Void) throws -> Void
    /// Checks the store, now and after a restart.
    let check: @Sendable (DiskStore, Outcome) throws -> Void

    var configuration: DiskStoreConfiguration {
        DiskStoreConfiguration(
            cacheDirectory: "/cache", stateDirectory: "/state", pendingLogouts: "/pending", userQuota: userQuota)
    }

    /// Opens a store with a constant clock.
    func open(_ system: any FileSystem) throws -> DiskStore {
        try DiskStore(
            configuration: configuration, system: system, now: { 1_700_000_000 }, pause: {}, yield: {},
            log: Logger(label: "test") { _ in SilentLog() })
    }

    /// Runs `body` with a store and shuts it down.
    func withStore<Result>(_ system: any FileSystem, _ body: (DiskStore) throws -> Result) throws -> Result {
        let store = try open(system)
        defer { store.shutdown() }
        return try body(store)
    }

    /// Returns a disk in the state before the operation.
    func disk() throws -> ForgetfulSystem {
        let disk = ForgetfulSystem()
        for directory in ["cache", "state", "pending"] as [FileName] { try disk.plantDirectory(directory) }
        try disk.plantFile(FileName(Self.pendingFile), in: "pending")
        try withStore(disk) { try before($0) }
        return disk
    }

    /// A pending logout of uid 1000.
    static let pendingFile = "1000." + String(repeating: "a", count: 32)

    /// Checks that hold for all operations.
    func checkAll(_ store: DiskStore, _ outcome: Outcome) throws {
        try check(store, outcome)
        if endsAllLogins { return }
        let other = try #require(try store.load(carol), outcome.what)
        #expect(outcome.allows(try other.generationStore.bytes(imageKey("bob")), 77), outcome.what)
    }
}

extension Scene {
    /// Checks after maintenance: no file is unreachable, and usage is exact.
    func checkTidy(_ disk: ForgetfulSystem, _ store: DiskStore, _ outcome: Outcome) {
        #expect(disk.leftOvers == [], outcome.what)
        #expect(store.isCounted, outcome.what)
        #expect(store.usageTotal == disk.usage, outcome.what)
        #expect(store.trashUsage == Usage(), outcome.what)
    }
}

extension ForgetfulSystem {
    /// Files that nothing will read or remove.
    fileprivate var leftOvers: [String] {
        let volume = volume
        let paths = volume.files.map(\.path)
        func count(_ prefix: String) -> Int { paths.count { $0.hasPrefix(prefix) && !$0.hasSuffix("/reserve") } }
        var found = paths.filter { $0.contains("/tmp.") || $0.hasSuffix(".tmp") }
        found += (paths + volume.directories).filter { $0.hasPrefix("/cache/trash/") }
        if count("/state/keys/") != count("/state/sessions/") { found.append("a key file or session file alone") }
        return found
    }

    /// The exact usage.
    fileprivate var usage: Usage {
        let volume = volume
        let files = volume.files.filter { $0.path.hasPrefix("/cache/users/") }
        let buckets = volume.directories.filter { $0.hasPrefix("/cache/users/") && $0.split(separator: "/").count == 5 }
        let bytes = files.reduce(0) { $0 + ($1.size + 4095) / 4096 * 4096 + 512 }
        return Usage(images: files.count, bytes: bytes + buckets.count * 4608)
    }
}

private let images = [imageKey("bob"), imageKey("bob", 64), imageKey("eve")]

private func logInCarol(_ store: DiskStore) throws {
    try store.commitLogin(carol, .plain).put(imageKey("bob"), testImage(77))
}

private func logInAlice(_ store: DiskStore) throws {
    let generationStore = try store.commitLogin(alice, .plain)
    for (index, imageKey) in images.enumerated() { try generationStore.put(imageKey, testImage(UInt8(index))) }
    try logInCarol(store)
}

private func found(_ store: DiskStore, _ outcome: Scene.Outcome) throws -> [[UInt8]?] {
    let login = try #require(try store.load(alice), outcome.what)
    return try images.map { try login.generationStore.bytes($0) }
}

/// Expects the images from before the operation.
private func expectAll(_ store: DiskStore, _ outcome: Scene.Outcome) throws {
    for (index, bytes) in try found(store, outcome).enumerated() {
        #expect(outcome.allows(bytes, UInt8(index)), outcome.what)
    }
}

private func closed(_ store: DiskStore) throws -> (any GenerationStore)? {
    let generationStore = try store.load(alice)?.generationStore
    generationStore?.close()
    return generationStore
}

extension Scene {
    static let all = [
        login, sessions, purge, logout, profiles, put, eviction, sweep, processing, boot,
    ]

    static let login = Scene(
        testDescription: "LOGIN", before: logInCarol, prepare: { _ in nil },
        operation: { store, _, receipt in
            // A login that exists is not written again, but the reply promises that it is durable.
            if try store.load(alice) == nil {
                _ = try store.commitLogin(alice, .plain)
            } else {
                try store.makeDurable(alice.uid)
            }
            receipt()
        },
        check: { store, outcome in
            let login = try store.load(alice)
            #expect(login == nil || login?.record == .plain, outcome.what)
            if outcome.isDone { #expect(login != nil, outcome.what) }
        })

    static let sessions = Scene(
        testDescription: "a change of sessions",
        operation: { store, _, receipt in
            var record = LoginRecord.plain
            record.sessions = [OpaqueID("other")]
            try store.commitSessions(alice, record)
            receipt()
        },
        check: { store, outcome in
            let login = try #require(try store.load(alice), outcome.what)
            let isOld = login.record.sessions == [OpaqueID("default")]
            #expect(isOld || login.record.sessions == [OpaqueID("other")], outcome.what)
            if outcome.isDone { #expect(!isOld, outcome.what) }
            try expectAll(store, outcome)
        })

    static let purge = Scene(
        testDescription: "PURGE", prepare: closed,
        operation: { store, old, receipt in
            let renewed = try store.commitPurge(alice)
            receipt()
            old?.discard()
            try renewed.put(imageKey("bob"), testImage(99))
        },
        check: { store, outcome in
            let found = try found(store, outcome)
            let isOld = found[0] == testImage(0).content || found[1] != nil || found[2] != nil
            if outcome.isDone { #expect(!isOld, outcome.what) }
            if isOld {
                try expectAll(store, outcome)
            } else {
                #expect(found[0] == nil || found[0] == testImage(99).content, outcome.what)
            }
        })

    static let logout = Scene(
        testDescription: "LOGOUT", prepare: closed,
        operation: { store, old, receipt in
            try store.commitLogout(alice)
            receipt()
            old?.discard()
        },
        check: { store, outcome in
            let login = try store.load(alice)
            if outcome.isDone { #expect(login == nil, outcome.what) }
            if login != nil { try expectAll(store, outcome) }
        })

    static let profiles = Scene(
        testDescription: "PURGE of profiles",
        operation: { _, generationStore, receipt in
            _ = try #require(generationStore).remove([OpaqueID("bob"), OpaqueID("nobody")])
            receipt()
        },
        check: { store, outcome in
            let found = try found(store, outcome)
            for (index, bytes) in found.enumerated() {
                #expect(bytes == nil || bytes == testImage(UInt8(index)).content, outcome.what)
            }
            #expect(outcome.allows(found[2], 2), outcome.what)
            if outcome.isDone { #expect(found[0] == nil && found[1] == nil, outcome.what) }
        })

    static let get = Scene(
        testDescription: "GET", isRead: true,
        operation: { _, generationStore, receipt in
            _ = generationStore?.readCached(imageKey("bob"), framing: .bare)
            for imageKey in images { _ = try generationStore?.bytes(imageKey) }
            receipt()
        },
        check: expectAll)

    static let put = Scene(
        testDescription: "PUT",
        operation: { _, generationStore, receipt in
            try generationStore?.put(imageKey("bob"), testImage(50))
            try generationStore?.put(imageKey("new"), testImage(51))
            receipt()
        },
        check: { store, outcome in
            let generationStore = try #require(try store.load(alice), outcome.what).generationStore
            let (replaced, added) = (
                try generationStore.bytes(imageKey("bob")), try generationStore.bytes(imageKey("new"))
            )
            #expect(outcome.allows(replaced, 0, 50), outcome.what)
            #expect(outcome.allows(added, 51, nil), outcome.what)
            guard outcome.isDone, !outcome.mayLoseImages else { return }
            #expect(replaced == testImage(50).content && added == testImage(51).content, outcome.what)
        })

    /// Room for three images; a fourth replaces one.
    static let eviction = Scene(
        testDescription: "eviction", userQuota: 30_000,
        operation: { _, generationStore, receipt in
            try generationStore?.put(imageKey("new"), testImage(51))
            receipt()
        },
        check: { store, outcome in
            var outcome = outcome
            outcome.mayLoseImages = true
            try expectAll(store, outcome)
            let added = try #require(try store.load(alice), outcome.what).generationStore.bytes(imageKey("new"))
            #expect(outcome.allows(added, 51), outcome.what)
        })

    /// Includes a generation that was not discarded, and a login that ends with its connection.
    static let sweep = Scene(
        testDescription: "the sweep after a start", isMaintenance: true,
        before: { store in
            let held = LoginRecord(sessions: [], loggedInAt: 1)
            let generationStore = try store.commitLogin(bob, held)
            try generationStore.put(imageKey("bob"), testImage(3))
            generationStore.close()
            try store.commitPurge(bob).put(imageKey("eve"), testImage(4))
            try logInAlice(store)
        },
        prepare: { _ in nil },
        operation: { store, _, receipt in
            store.maintain()
            receipt()
        },
        check: { store, outcome in
            try expectAll(store, outcome)
            #expect(try store.load(bob) == nil, outcome.what)
        })

    /// The steps of ``PendingLogouts``.
    static let processing = Scene(
        testDescription: "processing of a pending-logout file", prepare: { _ in nil },
        operation: { store, _, receipt in
            let pendingFiles = try #require(store.pendingLogoutFiles)
            let pending = try pendingFiles.pending()
            for user in try store.users(of: 1000) { try store.commitLogout(Owner(uid: 1000, user: user)) }
            try pendingFiles.remove(pending)
            receipt()
        },
        check: { store, outcome in
            let isPending = try store.pendingLogoutFiles?.pending().map(\.name) == [Self.pendingFile]
            let isLoggedIn = try store.load(alice) != nil
            if !isPending { #expect(!isLoggedIn, outcome.what) }
            if outcome.isDone { #expect(!isPending, outcome.what) }
            if isLoggedIn { try expectAll(store, outcome) }
        })

    static let boot = Scene(
        testDescription: "a start after a boot that ends logins", endsAllLogins: true, prepare: { _ in nil },
        operation: { store, _, receipt in
            try store.endLoginsOfEarlierBoot(than: "a boot", endsLogins: true)
            receipt()
        },
        check: { store, outcome in
            if outcome.isDone { #expect(try store.users(of: 1000) + store.users(of: 1001) == [], outcome.what) }
            // The next start completes this before it serves clients.
            try store.endLoginsOfEarlierBoot(than: "a boot", endsLogins: true)
            #expect(try store.users(of: 1000) + store.users(of: 1001) == [], outcome.what)
        })
}
