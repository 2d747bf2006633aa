import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import ThumbnailCache

/// The log-ins' half of the store: key files, which are the log-ins, and session files.
///
/// One thread at a time works on an owner. Before anything of a uid is changed or promised for the first time in this
/// run, its directories are made durable: what a run before this one left in memory only, a receipt must not build on.
/// Whoever only reads needs nothing durable (I9).
struct LoginFiles: Sendable {
    let disk: Disk
    let keys: Directory
    let sessions: Directory
    let names: NamesKey
    let algorithms: Algorithms
    let reserve: Reserve
    let random: any RandomSource
    let counters: Counters<StoreEvent>
    let log: Logger
    /// Held by whoever works on an owner.
    let locks = StripedLocks(count: 64)
    private let claims = DirectoryClaims()
    private let state = NIOLockedValueBox(State())

    private struct State {
        /// Session keys of log-ins that were committed or loaded in this run. The others may be of HOLD alone, left by
        /// a run before: their sessions cannot have survived it.
        var live: [SealedOwner: Secret] = [:]
        /// Uids whose directories were made durable in this run.
        var durable: Set<UInt32> = []
        /// How often directories of a uid were removed. What was durable before one was is durable no more.
        var removals: UInt64 = 0
        /// Log-ins that failed and could not be undone. Their key file may be there: nobody was told that they are
        /// logged in, and it may not be durable.
        var halfBegun: Set<SealedOwner> = []
    }

    func sealedOwner(_ owner: Owner) throws -> SealedOwner {
        SealedOwner(uid: owner.uid, user: try names.name(of: owner))
    }

    // MARK: What is there

    /// The log-in, or nil; what is damaged, or has no session any more, is ended on the way. Lock held.
    func load(_ sealedOwner: SealedOwner) throws -> (keys: KeyFile, session: SessionRecord)? {
        try undoHalfBegun(sealedOwner)
        guard let keys = try keyFile(of: sealedOwner) else { return nil }
        guard let record = try session(of: sealedOwner, key: keys.sessionKey) else {
            try endDamaged(sealedOwner, "its session file is missing or damaged")
            return nil
        }
        if record.login.sessions.isEmpty, !isLive(sealedOwner) {
            // All its sessions were those of connections (HOLD), and ended with the daemon before this one.
            try end(sealedOwner)
            return nil
        }
        return (keys, record)
    }

    private func session(of sealedOwner: SealedOwner, key: Secret) throws -> SessionRecord? {
        guard let directory = try uidDirectory(sealedOwner.uid, in: sessions),
            let file = try disk.contents(of: sealedOwner.user.fileName, in: directory, limit: SessionFile.longest),
            let record = try SessionFile.open(file, of: sealedOwner, key: key, algorithms: algorithms),
            try names.name(of: Owner(uid: sealedOwner.uid, user: record.user)) == sealedOwner.user
        else { return nil }
        return record
    }

    /// The uids that have a directory, of key files unless ``sessions`` are asked for.
    func uids(in root: Directory? = nil) throws -> [UInt32] {
        try disk.names(in: root ?? keys).compactMap { UInt32(name: $0.name) }
    }

    /// Everybody of a uid that has a file there.
    func owners(of uid: UInt32, in root: Directory? = nil) throws -> [SealedOwner] {
        guard let directory = try uidDirectory(uid, in: root ?? keys) else { return [] }
        return try disk.names(in: directory).compactMap { entry in
            SealedName(hex: entry.name.bytes).map { SealedOwner(uid: uid, user: $0) }
        }
    }

    func isLive(_ sealedOwner: SealedOwner) -> Bool { state.withLockedValue { $0.live[sealedOwner] != nil } }

    func setLive(_ sealedOwner: SealedOwner, sessionKey: Secret) {
        state.withLockedValue { $0.live[sealedOwner] = sessionKey }
    }

    /// The store is closing: no key stays in memory.
    func forgetKeys() { state.withLockedValue { $0.live = [:] } }

    // MARK: Commits. Lock held.

    /// Sessions first, then the key file: when that is there the log-in is a fact. The other way round a kill between
    /// the two would leave what looks like damage.
    func begin(_ sealedOwner: SealedOwner, _ record: SessionRecord) throws -> KeyFile {
        try undoHalfBegun(sealedOwner)
        let keyFile = try KeyFile(random: random)
        var mayStand = false
        do {
            try claims.claiming(sealedOwner.uid) {
                try makeUIDDirectory(sealedOwner.uid, in: keys, .keys)
                try makeUIDDirectory(sealedOwner.uid, in: sessions, .sessions)
                try makeDurable(sealedOwner.uid)
                try write(record, of: sealedOwner, key: keyFile.sessionKey)
                mayStand = true
                try write(keyFile, of: sealedOwner)
            }
        } catch {
            // Half a log-in must not be found later by those who were told that there is none.
            do {
                try end(sealedOwner)
            } catch {
                // Before anything is said of this sealedOwner, it is tried again (F74).
                if mayStand { state.withLockedValue { _ = $0.halfBegun.insert(sealedOwner) } }
                log.warning("a log-in that failed could not be undone", metadata: ["error": "\(error)"])
            }
            throw error
        }
        setLive(sealedOwner, sessionKey: keyFile.sessionKey)
        return keyFile
    }

    func change(_ sealedOwner: SealedOwner, _ record: SessionRecord) throws {
        try makeDurable(sealedOwner.uid)
        let key = try sessionKey(of: sealedOwner)
        try reserve.givingUp { try write(record, of: sealedOwner, key: key) }
    }

    private func undoHalfBegun(_ sealedOwner: SealedOwner) throws {
        if state.withLockedValue({ $0.halfBegun.contains(sealedOwner) }) { try end(sealedOwner) }
    }

    /// A new generation. What was sealed under the old one's key is noise when this returns.
    func renew(_ sealedOwner: SealedOwner) throws -> KeyFile {
        try makeDurable(sealedOwner.uid)
        let keyFile = try KeyFile(random: random, sessionKey: try sessionKey(of: sealedOwner))
        try reserve.givingUp { try write(keyFile, of: sealedOwner) }
        return keyFile
    }

    /// Destroys the keys, durably, and then what they sealed. Ends also what is damaged, half begun or half ended.
    func end(_ sealedOwner: SealedOwner) throws {
        try makeDurable(sealedOwner.uid)
        let name = sealedOwner.user.fileName
        if let directory = try uidDirectory(sealedOwner.uid, in: keys) {
            let keysOfUID = SyncedDirectory.keysOf(uid: sealedOwner.uid)
            var isChanged = disk.hasFailedSync(keysOfUID)
            var failure = FirstFailure()
            // Whatever becomes of one of them, what was done is made durable here: whoever tries again finds nothing to
            // do there.
            for name in [name, Disk.temporaryName(for: name)] {
                failure.attempt {
                    let before = isChanged
                    isChanged = true
                    if try !disk.destroy(name, in: directory, reserve) { isChanged = before }
                }
            }
            if isChanged { try disk.sync(directory, keysOfUID) }
            try failure.rethrow()
        }
        state.withLockedValue { state in
            state.live[sealedOwner] = nil
            state.halfBegun.remove(sealedOwner)
        }
        // Without its key it says nothing; the next sweep removes what stays.
        log.attempt("a session file could not be removed") {
            guard let directory = try uidDirectory(sealedOwner.uid, in: sessions) else { return }
            for name in [name, Disk.temporaryName(for: name)] { try disk.unlinkIfPresent(name, in: directory) }
        }
        removeEmptyDirectories(of: sealedOwner.uid)
    }

    // MARK: Steps

    private func sessionKey(of sealedOwner: SealedOwner) throws -> Secret {
        if let key = state.withLockedValue({ $0.live[sealedOwner] }) { return key }
        guard let keyFile = try keyFile(of: sealedOwner) else { throw StoreError.failed("the user is not logged in") }
        return keyFile.sessionKey
    }

    private func write(_ record: SessionRecord, of sealedOwner: SealedOwner, key: Secret) throws {
        let file = try SessionFile.seal(record, of: sealedOwner, key: key, algorithms: algorithms, random: random)
        let directory = try existingUIDDirectory(sealedOwner.uid, in: sessions)
        try disk.replace(sealedOwner.user.fileName, in: directory, .sessionsOf(uid: sealedOwner.uid), with: file)
    }

    func endDamaged(_ sealedOwner: SealedOwner, _ reason: String) throws {
        counters.count(.damagedLogins)
        log.warning("a user is logged out: \(reason)", metadata: ["uid": "\(sealedOwner.uid)"])
        try end(sealedOwner)
    }

    // MARK: Directories of a uid

    /// With a uid's last log-in its directories go, too: nothing says that it was ever here.
    func removeEmptyDirectories(of uid: UInt32) {
        claims.ifUnclaimed(uid) {
            log.attempt("an empty directory could not be removed", .debug, ["uid": "\(uid)"]) {
                for root in [keys, sessions] { try disk.removeDirectoryIfEmpty(FileName(String(uid)), in: root) }
            }
            // Whoever makes them anew makes them durable anew.
            state.withLockedValue { state in
                state.durable.remove(uid)
                state.removals += 1
            }
        }
    }

    func uidDirectory(_ uid: UInt32, in parent: Directory) throws -> Directory? {
        try unlessMissing { () throws(SystemError) in try existingUIDDirectory(uid, in: parent) }
    }

    func existingUIDDirectory(_ uid: UInt32, in parent: Directory) throws(SystemError) -> Directory {
        try disk.openDirectory(FileName(String(uid)), in: parent)
    }

    private func makeUIDDirectory(_ uid: UInt32, in parent: Directory, _ which: SyncedDirectory) throws {
        if try uidDirectory(uid, in: parent) == nil {
            // Another log-in of the uid, that of another user, may make it in between.
            try disk.makeDirectoryIfAbsent(FileName(String(uid)), in: parent)
        } else if state.withLockedValue({ $0.durable.contains(uid) }) {
            return
        }
        // Also where another has made it: whether that one has come to its fsync yet is not known.
        try disk.sync(parent, which)
    }

    /// Makes durable what was found of a uid, once per run: see above.
    func makeDurable(_ uid: UInt32) throws {
        let (isDurable, removals) = state.withLockedValue { ($0.durable.contains(uid), $0.removals) }
        guard !isDurable, let keysOfUID = try uidDirectory(uid, in: keys) else { return }
        try disk.sync(keys, .keys)
        try disk.sync(keysOfUID, .keysOf(uid: uid))
        if let sessionsOfUID = try uidDirectory(uid, in: sessions) {
            try disk.sync(sessions, .sessions)
            try disk.sync(sessionsOfUID, .sessionsOf(uid: uid))
        }
        state.withLockedValue { state in
            if state.removals == removals { state.durable.insert(uid) }
        }
    }
}

extension UInt32 {
    /// The number that a directory is named after; nil for a name that is none, or is spelled another way.
    init?(name: FileName) { self.init(digits: name.bytes) }

    init?(digits: ArraySlice<UInt8>) {
        let text = String(decoding: digits, as: UTF8.self)
        guard let number = UInt32(text), String(number) == text else { return nil }
        self = number
    }
}
