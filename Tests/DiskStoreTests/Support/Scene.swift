import CacheCore
import Logging
import Testing

@testable import DiskStore

/// An operation of the store, and what may be found when it was ended in the middle.
struct Scene: CustomTestStringConvertible, Sendable {
    /// How far it came, and what became of the disk.
    struct Outcome {
        /// Whether what it promises was promised.
        var isDone: Bool
        /// Whether images may be missing, since nothing makes them durable.
        var mayLoseImages = false
        /// For messages: where it was ended.
        let what: Comment

        /// Whether an image is one of these, whole.
        func allows(_ found: [UInt8]?, _ allowed: UInt8?...) -> Bool {
            allowed.contains { $0.map { picture($0).content } == found } || mayLoseImages && found == nil
        }
    }

    let testDescription: String
    /// Bytes of images that each user may have.
    var userQuota = 64 << 20
    /// Whether it ends everybody's log-in.
    var isOfEverybody = false
    /// Whether it is what happens behind everybody's back. What of it fails may be left to the next start.
    var isMaintenance = false
    /// Whether it only reads: an image that the disk cannot give back goes.
    var isRead = false
    /// Brings a new store to where the operation begins.
    var before: @Sendable (DiskStore) throws -> Void = logInAlice
    /// What whoever asks for the operation has at hand.
    var prepare: @Sendable (DiskStore) throws -> (any GenerationStore)? = { try $0.load(alice)?.generationStore }
    /// The operation. Throws when it fails or dies; calls `receipt` when it has promised what it promises.
    let operation: @Sendable (DiskStore, (any GenerationStore)?, _ receipt: () -> Void) throws -> Void
    /// What the store then says, now and after a restart.
    let check: @Sendable (DiskStore, Outcome) throws -> Void

    var configuration: DiskStoreConfiguration {
        DiskStoreConfiguration(
            cacheDirectory: "/cache", stateDirectory: "/state", pendingLogouts: "/pending", userQuota: userQuota)
    }

    /// A store on a disk, whose time stands still.
    func open(_ system: any FileSystem) throws -> DiskStore {
        try DiskStore(
            configuration: configuration, system: system, now: { 1_700_000_000 }, pause: {}, yield: {},
            log: Logger(label: "test") { _ in SilentLog() })
    }

    /// Runs `body` with a store that is shut down after.
    func withStore<Result>(_ system: any FileSystem, _ body: (DiskStore) throws -> Result) throws -> Result {
        let store = try open(system)
        defer { store.shutdown() }
        return try body(store)
    }

    /// A disk with all that was before the operation, of which the daemon has made durable what it wanted to.
    func disk() throws -> ForgetfulSystem {
        let disk = ForgetfulSystem()
        for directory in ["cache", "state", "pending"] as [FileName] { try disk.plantDirectory(directory) }
        try disk.plantFile(FileName(Self.marker), in: "pending")
        try withStore(disk) { try before($0) }
        return disk
    }

    /// That of uid 1000.
    static let marker = "1000." + String(repeating: "a", count: 32)

    /// What holds whatever the operation was.
    func checkAll(_ store: DiskStore, _ outcome: Outcome) throws {
        try check(store, outcome)
        if isOfEverybody { return }
        let other = try #require(try store.load(carol), outcome.what)
        #expect(outcome.allows(try other.generationStore.bytes(imageKey("bob")), 77), outcome.what)
    }
}

extension Scene {
    /// What holds behind maintenance: nothing is left that nobody will ever read, and the accounts are right.
    func checkTidy(_ disk: ForgetfulSystem, _ store: DiskStore, _ outcome: Outcome) {
        #expect(disk.leftOvers == [], outcome.what)
        #expect(store.isCounted, outcome.what)
        #expect(store.usageTotal == disk.usage, outcome.what)
        #expect(store.trashUsage == Usage(), outcome.what)
    }
}

extension ForgetfulSystem {
    /// What nobody will ever read or remove.
    fileprivate var leftOvers: [String] {
        let volume = volume
        let paths = volume.files.map(\.path)
        func count(_ prefix: String) -> Int { paths.count { $0.hasPrefix(prefix) && !$0.hasSuffix("/reserve") } }
        var found = paths.filter { $0.contains("/tmp.") || $0.hasSuffix(".tmp") }
        found += (paths + volume.directories).filter { $0.hasPrefix("/cache/trash/") }
        if count("/state/keys/") != count("/state/sessions/") { found.append("a key file or session file alone") }
        return found
    }

    /// What a count of everything comes to.
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
    try store.commitLogin(carol, .plain).put(imageKey("bob"), picture(77))
}

private func logInAlice(_ store: DiskStore) throws {
    let generationStore = try store.commitLogin(alice, .plain)
    for (index, imageKey) in images.enumerated() { try generationStore.put(imageKey, picture(UInt8(index))) }
    try logInCarol(store)
}

private func found(_ store: DiskStore, _ outcome: Scene.Outcome) throws -> [[UInt8]?] {
    let login = try #require(try store.load(alice), outcome.what)
    return try images.map { try login.generationStore.bytes($0) }
}

/// As they were before the operation.
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
            // Of one that is there nothing is written again, and yet the reply promises it.
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
            try renewed.put(imageKey("bob"), picture(99))
        },
        check: { store, outcome in
            let found = try found(store, outcome)
            let isOld = found[0] == picture(0).content || found[1] != nil || found[2] != nil
            if outcome.isDone { #expect(!isOld, outcome.what) }
            if isOld {
                try expectAll(store, outcome)
            } else {
                #expect(found[0] == nil || found[0] == picture(99).content, outcome.what)
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
                #expect(bytes == nil || bytes == picture(UInt8(index)).content, outcome.what)
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
            try generationStore?.put(imageKey("bob"), picture(50))
            try generationStore?.put(imageKey("new"), picture(51))
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
            #expect(replaced == picture(50).content && added == picture(51).content, outcome.what)
        })

    /// Room for three images, of which one makes place for another.
    static let eviction = Scene(
        testDescription: "eviction", userQuota: 30_000,
        operation: { _, generationStore, receipt in
            try generationStore?.put(imageKey("new"), picture(51))
            receipt()
        },
        check: { store, outcome in
            var outcome = outcome
            outcome.mayLoseImages = true
            try expectAll(store, outcome)
            let added = try #require(try store.load(alice), outcome.what).generationStore.bytes(imageKey("new"))
            #expect(outcome.allows(added, 51), outcome.what)
        })

    /// With a generation that nobody has discarded, and a log-in that does not outlive its connection.
    static let sweep = Scene(
        testDescription: "the sweep after a start", isMaintenance: true,
        before: { store in
            let held = LoginRecord(sessions: [], loggedInAt: 1)
            let generationStore = try store.commitLogin(bob, held)
            try generationStore.put(imageKey("bob"), picture(3))
            generationStore.close()
            try store.commitPurge(bob).put(imageKey("eve"), picture(4))
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

    /// As ``PendingLogouts`` does it.
    static let processing = Scene(
        testDescription: "the honouring of a marker", prepare: { _ in nil },
        operation: { store, _, receipt in
            let markers = try #require(store.logoutMarkers)
            let pending = try markers.pending()
            for user in try store.users(of: 1000) { try store.commitLogout(Owner(uid: 1000, user: user)) }
            try markers.remove(pending)
            receipt()
        },
        check: { store, outcome in
            let isPending = try store.logoutMarkers?.pending().map(\.name) == [Self.marker]
            let isLoggedIn = try store.load(alice) != nil
            if !isPending { #expect(!isLoggedIn, outcome.what) }
            if outcome.isDone { #expect(!isPending, outcome.what) }
            if isLoggedIn { try expectAll(store, outcome) }
        })

    static let boot = Scene(
        testDescription: "a start after a boot that ends log-ins", isOfEverybody: true, prepare: { _ in nil },
        operation: { store, _, receipt in
            try store.recordBoot("a boot", endsLogins: true)
            receipt()
        },
        check: { store, outcome in
            if outcome.isDone { #expect(try store.users(of: 1000) + store.users(of: 1001) == [], outcome.what) }
            // Whatever was left undone is done before anybody is served.
            try store.recordBoot("a boot", endsLogins: true)
            #expect(try store.users(of: 1000) + store.users(of: 1001) == [], outcome.what)
        })
}
