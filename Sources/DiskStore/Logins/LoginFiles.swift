import CacheCore
import LinuxSupport
import Logging
import NIOConcurrencyHelpers

/// The log-ins' half of the store: key files, which are the log-ins, and session files.
///
/// One thread at a time works on an owner. Before anything of a uid is changed or promised for the first time in this
/// run, its directories are made durable: what a run before this one left in memory only, a receipt must not build on.
/// Whoever only reads needs nothing durable (I9).
struct LoginFiles: Sendable {
    let disk: Disk
    let keys: Directory
    let sessions: Directory
    let names: NameHashingKey
    let algorithms: Algorithms
    let reserve: EmergencyReserve
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
        var live: [HashedOwner: Secret] = [:]
        /// Uids whose directories were made durable in this run.
        var durable: Set<UInt32> = []
        /// How often directories of a uid were removed. What was durable before one was is durable no more.
        var removals: UInt64 = 0
        /// Log-ins that failed and could not be undone. Their key file may be there: nobody was told that they are
        /// logged in, and it may not be durable.
        var halfBegun: Set<HashedOwner> = []
    }

    func hashedOwner(_ owner: Owner) throws -> HashedOwner {
        HashedOwner(uid: owner.uid, user: try names.name(of: owner))
    }

    // MARK: What is there

    /// The log-in, or nil; what is damaged, or has no session any more, is ended on the way. Lock held.
    func load(_ hashedOwner: HashedOwner) throws -> (keys: KeyFile, session: SessionRecord)? {
        try undoHalfBegun(hashedOwner)
        guard let keys = try keyFile(of: hashedOwner) else { return nil }
        guard let record = try session(of: hashedOwner, key: keys.sessionKey) else {
            try endDamaged(hashedOwner, "its session file is missing or damaged")
            return nil
        }
        if record.login.sessions.isEmpty, !isLive(hashedOwner) {
            // All its sessions were those of connections (HOLD), and ended with the daemon before this one.
            try end(hashedOwner)
            return nil
        }
        return (keys, record)
    }

    private func session(of hashedOwner: HashedOwner, key: Secret) throws -> SessionRecord? {
        guard let directory = try uidDirectory(hashedOwner.uid, in: sessions),
            let file = try disk.contents(of: hashedOwner.user.fileName, in: directory, limit: SessionFile.longest),
            let record = try SessionFile.open(file, of: hashedOwner, key: key, algorithms: algorithms),
            try names.name(of: Owner(uid: hashedOwner.uid, user: record.user)) == hashedOwner.user
        else { return nil }
        return record
    }

    /// The uids that have a directory, of key files unless ``sessions`` are asked for.
    func uids(in root: Directory? = nil) throws -> [UInt32] {
        try disk.names(in: root ?? keys).compactMap { UInt32(name: $0.name) }
    }

    /// Everybody of a uid that has a file there.
    func owners(of uid: UInt32, in root: Directory? = nil) throws -> [HashedOwner] {
        guard let directory = try uidDirectory(uid, in: root ?? keys) else { return [] }
        return try disk.names(in: directory).compactMap { entry in
            HashedName(hex: entry.name.bytes).map { HashedOwner(uid: uid, user: $0) }
        }
    }

    func isLive(_ hashedOwner: HashedOwner) -> Bool { state.withLockedValue { $0.live[hashedOwner] != nil } }

    func setLive(_ hashedOwner: HashedOwner, sessionKey: Secret) {
        state.withLockedValue { $0.live[hashedOwner] = sessionKey }
    }

    /// The store is closing: no key stays in memory.
    func forgetKeys() { state.withLockedValue { $0.live = [:] } }

    // MARK: Commits. Lock held.

    /// Sessions first, then the key file: when that is there the log-in is a fact. The other way round a kill between
    /// the two would leave what looks like damage.
    func begin(_ hashedOwner: HashedOwner, _ record: SessionRecord) throws -> KeyFile {
        try undoHalfBegun(hashedOwner)
        let keyFile = try KeyFile(random: random)
        var mayStand = false
        do {
            try claims.claiming(hashedOwner.uid) {
                try makeUIDDirectory(hashedOwner.uid, in: keys, .keys)
                try makeUIDDirectory(hashedOwner.uid, in: sessions, .sessions)
                try makeDurable(hashedOwner.uid)
                try write(record, of: hashedOwner, key: keyFile.sessionKey)
                mayStand = true
                try write(keyFile, of: hashedOwner)
            }
        } catch {
            // Half a log-in must not be found later by those who were told that there is none.
            do {
                try end(hashedOwner)
            } catch {
                // Before anything is said of this hashed owner, it is tried again (F74).
                if mayStand { state.withLockedValue { _ = $0.halfBegun.insert(hashedOwner) } }
                log.warning("a log-in that failed could not be undone", metadata: ["error": "\(error)"])
            }
            throw error
        }
        setLive(hashedOwner, sessionKey: keyFile.sessionKey)
        return keyFile
    }

    func change(_ hashedOwner: HashedOwner, _ record: SessionRecord) throws {
        try makeDurable(hashedOwner.uid)
        let key = try sessionKey(of: hashedOwner)
        try reserve.givingUp { try write(record, of: hashedOwner, key: key) }
    }

    private func undoHalfBegun(_ hashedOwner: HashedOwner) throws {
        if state.withLockedValue({ $0.halfBegun.contains(hashedOwner) }) { try end(hashedOwner) }
    }

    /// A new generation. What was sealed under the old one's key is noise when this returns.
    func renew(_ hashedOwner: HashedOwner) throws -> KeyFile {
        try makeDurable(hashedOwner.uid)
        let keyFile = try KeyFile(random: random, sessionKey: try sessionKey(of: hashedOwner))
        try reserve.givingUp { try write(keyFile, of: hashedOwner) }
        return keyFile
    }

    /// Destroys the keys, durably, and then what they sealed. Ends also what is damaged, half begun or half ended.
    func end(_ hashedOwner: HashedOwner) throws {
        try makeDurable(hashedOwner.uid)
        let name = hashedOwner.user.fileName
        if let directory = try uidDirectory(hashedOwner.uid, in: keys) {
            let keysOfUID = SyncedDirectory.keysOf(uid: hashedOwner.uid)
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
            state.live[hashedOwner] = nil
            state.halfBegun.remove(hashedOwner)
        }
        // Without its key it says nothing; the next sweep removes what stays.
        log.attempt("a session file could not be removed") {
            guard let directory = try uidDirectory(hashedOwner.uid, in: sessions) else { return }
            for name in [name, Disk.temporaryName(for: name)] { try disk.unlinkIfPresent(name, in: directory) }
        }
        removeEmptyDirectories(of: hashedOwner.uid)
    }

    // MARK: Steps

    private func sessionKey(of hashedOwner: HashedOwner) throws -> Secret {
        if let key = state.withLockedValue({ $0.live[hashedOwner] }) { return key }
        guard let keyFile = try keyFile(of: hashedOwner) else { throw StoreError.failed("the user is not logged in") }
        return keyFile.sessionKey
    }

    private func write(_ record: SessionRecord, of hashedOwner: HashedOwner, key: Secret) throws {
        let file = try SessionFile.seal(record, of: hashedOwner, key: key, algorithms: algorithms, random: random)
        let directory = try existingUIDDirectory(hashedOwner.uid, in: sessions)
        try disk.replace(hashedOwner.user.fileName, in: directory, .sessionsOf(uid: hashedOwner.uid), with: file)
    }

    func endDamaged(_ hashedOwner: HashedOwner, _ reason: String) throws {
        counters.count(.damagedLogins)
        log.warning("a user is logged out: \(reason)", metadata: ["uid": "\(hashedOwner.uid)"])
        try end(hashedOwner)
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
