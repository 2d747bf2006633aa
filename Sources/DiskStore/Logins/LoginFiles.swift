import CacheCore
import LinuxSupport
import Logging
import NIOConcurrencyHelpers

/// The logins of the store: key files, which are the logins, and session files.
///
/// One thread at a time works on an owner. Before the first change or receipt for a uid in this run, its directories
/// are made durable, since an earlier run may have left changes in memory only. Reading needs no durability (I9).
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
    let locks = StripedLocks(count: 64)
    private let claims = DirectoryClaims()
    private let state = NIOLockedValueBox(State())

    private struct State {
        /// Session keys of logins committed or loaded in this run. A login that is missing here and has no sessions on
        /// disk had only HOLD sessions of an earlier run, which have ended.
        var live: [HashedOwner: Secret] = [:]
        /// Uids whose directories were made durable in this run.
        var durable: Set<UInt32> = []
        /// Number of removed uid directories. A change voids the result of ``makeDurable(_:)``.
        var removals: UInt64 = 0
        /// Failed logins that could not be undone: their key file may exist although the client got an error.
        var incomplete: Set<HashedOwner> = []
    }

    func hashedOwner(_ owner: Owner) throws -> HashedOwner {
        HashedOwner(uid: owner.uid, user: try names.name(of: owner))
    }

    // MARK: What is there

    /// Loads a login; nil if there is none. Ends a login that is damaged or has no sessions. The lock is held.
    func load(_ hashedOwner: HashedOwner) throws -> (keys: KeyFile, session: SessionRecord)? {
        try undoIncomplete(hashedOwner)
        guard let keys = try keyFile(of: hashedOwner) else { return nil }
        guard let record = try session(of: hashedOwner, key: keys.sessionKey) else {
            try endDamaged(hashedOwner, "missing or damaged session file")
            return nil
        }
        if record.login.sessions.isEmpty, !isLive(hashedOwner) {
            // All its sessions belonged to connections (HOLD) of an earlier run.
            try end(hashedOwner)
            return nil
        }
        return (keys, record)
    }

    private func session(of hashedOwner: HashedOwner, key: Secret) throws -> SessionRecord? {
        guard let directory = try uidDirectory(hashedOwner.uid, in: sessions),
            let file = try disk.contents(
                of: hashedOwner.user.fileName, in: directory, limit: SessionFile.maximumLength),
            let record = try SessionFile.open(file, of: hashedOwner, key: key, algorithms: algorithms),
            try names.name(of: Owner(uid: hashedOwner.uid, user: record.user)) == hashedOwner.user
        else { return nil }
        return record
    }

    func uids(in root: Directory? = nil) throws -> [UInt32] {
        try disk.names(in: root ?? keys).compactMap { UInt32(name: $0.name) }
    }

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

    func wipeKeys() { state.withLockedValue { $0.live = [:] } }

    // MARK: Commits. Lock held.

    /// Commits a login: first the session file, then the key file. In the other order, a kill in between would leave a
    /// login that looks damaged.
    func begin(_ hashedOwner: HashedOwner, _ record: SessionRecord) throws -> KeyFile {
        try undoIncomplete(hashedOwner)
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
            // The client gets an error, so the login must not be found later.
            do {
                try end(hashedOwner)
            } catch {
                // Retried before anything is reported about this owner (F74).
                if mayStand { state.withLockedValue { _ = $0.incomplete.insert(hashedOwner) } }
                log.warning("could not undo a failed login", metadata: ["error": "\(error)"])
            }
            throw error
        }
        setLive(hashedOwner, sessionKey: keyFile.sessionKey)
        return keyFile
    }

    func change(_ hashedOwner: HashedOwner, _ record: SessionRecord) throws {
        try makeDurable(hashedOwner.uid)
        let key = try sessionKey(of: hashedOwner)
        try reserve.retryingWithReserve { try write(record, of: hashedOwner, key: key) }
    }

    private func undoIncomplete(_ hashedOwner: HashedOwner) throws {
        if state.withLockedValue({ $0.incomplete.contains(hashedOwner) }) { try end(hashedOwner) }
    }

    /// Commits a new generation. Images of the old one are unreadable when this returns.
    func renew(_ hashedOwner: HashedOwner) throws -> KeyFile {
        try makeDurable(hashedOwner.uid)
        let keyFile = try KeyFile(random: random, sessionKey: try sessionKey(of: hashedOwner))
        try reserve.retryingWithReserve { try write(keyFile, of: hashedOwner) }
        return keyFile
    }

    /// Destroys the keys durably, and then removes the session file. Also ends damaged, incomplete and half-ended
    /// logins.
    func end(_ hashedOwner: HashedOwner) throws {
        try makeDurable(hashedOwner.uid)
        let name = hashedOwner.user.fileName
        if let directory = try uidDirectory(hashedOwner.uid, in: keys) {
            let keysOfUID = SyncedDirectory.keysOf(uid: hashedOwner.uid)
            var isChanged = disk.hasFailedSync(keysOfUID)
            var failure = FirstFailure()
            // Even after a failure, the other steps are made durable: a retry finds nothing left to do for them.
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
            state.incomplete.remove(hashedOwner)
        }
        // Unreadable without its key; if it stays, the next sweep removes it.
        log.onFailure("could not remove a session file") {
            guard let directory = try uidDirectory(hashedOwner.uid, in: sessions) else { return }
            try disk.unlinkIfPresent(name, in: directory)
            try disk.unlinkIfPresent(Disk.temporaryName(for: name), in: directory)
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
        log.warning("damaged login ended", metadata: ["uid": "\(hashedOwner.uid)", "reason": "\(reason)"])
        try end(hashedOwner)
    }

    // MARK: Directories of a uid

    /// Removes the directories of a uid after its last login, so that no trace of it remains.
    func removeEmptyDirectories(of uid: UInt32) {
        claims.ifUnclaimed(uid) {
            log.onFailure("could not remove an empty directory", .debug, ["uid": "\(uid)"]) {
                for root in [keys, sessions] { try disk.removeDirectoryIfEmpty(FileName(String(uid)), in: root) }
            }
            // New directories have to be made durable again.
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
            // A concurrent login of another user of this uid may create it first.
            try disk.makeDirectoryIfAbsent(FileName(String(uid)), in: parent)
        } else if state.withLockedValue({ $0.durable.contains(uid) }) {
            return
        }
        // Even if another thread created it, since its fsync may not be complete.
        try disk.sync(parent, which)
    }

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
    init?(name: FileName) { self.init(digits: name.bytes) }

    init?(digits: ArraySlice<UInt8>) {
        let text = String(decoding: digits, as: UTF8.self)
        guard let number = UInt32(text), String(number) == text else { return nil }
        self = number
    }
}
