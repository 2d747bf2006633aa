import Glibc
import Logging
import NIOConcurrencyHelpers
import Synchronization
import ThumbnailCache

/// The log-ins' half of the store: key files, which are the log-ins, and session files.
///
/// One thread at a time works on an owner. Every directory of a uid that is met for the first time in this run is made
/// durable first: what a run before this one left in memory only, a receipt must not build on.
final class LoginFiles: Sendable {
    let disk: Disk
    let keys: Directory
    let sessions: Directory
    let names: NamesKey
    let algorithms: Algorithms
    let directorySync: DirectorySync
    let reserve: Reserve
    let random: any RandomSource
    let counters: Counters
    let log: Logger
    private let locks = StripedLocks(count: 64)
    private let claims = DirectoryClaims()
    private let state = NIOLockedValueBox(State())

    private struct State {
        /// Session keys of log-ins that were committed or loaded in this run. The others may be held-only ones that a
        /// run before left: their sessions cannot have survived it.
        var live: [Person: Secret] = [:]
        var settled: Set<UInt32> = []
    }

    /// What there is of a log-in.
    struct Login {
        let keys: KeyFile
        let session: SessionRecord
    }

    init(
        disk: Disk, keys: Directory, sessions: Directory, names: NamesKey, algorithms: Algorithms,
        directorySync: DirectorySync, reserve: Reserve, random: any RandomSource, counters: Counters, log: Logger
    ) {
        self.disk = disk
        self.keys = keys
        self.sessions = sessions
        self.names = names
        self.algorithms = algorithms
        self.directorySync = directorySync
        self.reserve = reserve
        self.random = random
        self.counters = counters
        self.log = log
    }

    func person(_ owner: Owner) throws -> Person {
        Person(uid: owner.uid, user: try names.name(of: owner))
    }

    /// Nobody else works on that person meanwhile.
    func withLock<Result>(_ person: Person, _ body: () throws -> Result) rethrows -> Result {
        try locks.withLock(for: person, body)
    }

    // MARK: What is there

    /// The log-in, or nil; what is damaged, or has no session any more, is ended on the way. Lock held.
    func load(_ person: Person) throws -> Login? {
        try settle(person.uid)
        guard let keys = try keyFile(of: person) else { return nil }
        guard let record = try session(of: person, key: keys.sessionKey) else {
            try endDamaged(person, "its session file is missing or damaged")
            return nil
        }
        if record.login.sessions.isEmpty, !isLive(person) {
            // All its sessions were held by connections, and those ended with the daemon before this one.
            try end(person)
            return nil
        }
        return Login(keys: keys, session: record)
    }

    /// The keys, or nil; a damaged file is ended on the way. Lock held.
    func keyFile(of person: Person) throws -> KeyFile? {
        guard let directory = try uidDirectory(person.uid, in: keys) else { return nil }
        let name = person.user.fileName
        guard let file = try disk.contents(of: name, in: directory, limit: KeyFile.size) else { return nil }
        let found = try file.withBytes { bytes in
            try KeyFile(bytes) { try names.check($0, uid: person.uid, user: person.user, into: $1) }
        }
        if found == nil { try endDamaged(person, "its key file is damaged") }
        return found
    }

    private func session(of person: Person, key: Secret) throws -> SessionRecord? {
        guard let directory = try uidDirectory(person.uid, in: sessions),
            let file = try disk.contents(of: person.user.fileName, in: directory, limit: SessionFile.longest),
            let record = try SessionFile.open(
                file, uid: person.uid, user: person.user, key: key, algorithms: algorithms),
            try names.name(of: Owner(uid: person.uid, user: record.user)) == person.user
        else { return nil }
        return record
    }

    /// The uids that have a directory of key files.
    func uids() throws -> [UInt32] {
        try disk.names(in: keys).compactMap { UInt32(name: $0.name) }
    }

    /// Everybody of a uid that has a key file.
    func people(of uid: UInt32) throws -> [Person] {
        guard let directory = try uidDirectory(uid, in: keys) else { return [] }
        return try disk.names(in: directory).compactMap { entry in
            SealedName(hex: entry.name.bytes).map { Person(uid: uid, user: $0) }
        }
    }

    func isLive(_ person: Person) -> Bool {
        state.withLockedValue { $0.live[person] != nil }
    }

    func setLive(_ person: Person, sessionKey: Secret) {
        state.withLockedValue { $0.live[person] = sessionKey }
    }

    /// The store is closing: no key stays in memory.
    func forgetKeys() {
        state.withLockedValue { $0.live = [:] }
    }

    // MARK: Commits. Lock held.

    /// Sessions first, then the key file: when that is in place the log-in is a fact.
    func begin(_ person: Person, _ record: SessionRecord) throws -> KeyFile {
        let keyFile = try KeyFile(random: random)
        do {
            try claims.claiming(person.uid) {
                try makeUIDDirectory(person.uid, in: keys, .keys)
                try makeUIDDirectory(person.uid, in: sessions, .sessions)
                try settle(person.uid)
                try write(record, of: person, key: keyFile.sessionKey)
                try write(keyFile, of: person)
            }
        } catch {
            // Half a log-in must not be found later by those who were told that there is none.
            do {
                try end(person)
            } catch {
                log.warning("a log-in that failed could not be undone", metadata: ["error": "\(error)"])
            }
            throw error
        }
        setLive(person, sessionKey: keyFile.sessionKey)
        return keyFile
    }

    func change(_ person: Person, _ record: SessionRecord) throws {
        try settle(person.uid)
        let key = try sessionKey(of: person)
        try givingUpReserve { try write(record, of: person, key: key) }
    }

    /// A new generation. What was sealed under the old one's key is noise when this returns.
    func renew(_ person: Person) throws -> KeyFile {
        try settle(person.uid)
        let keyFile = try KeyFile(random: random, sessionKey: try sessionKey(of: person))
        try givingUpReserve { try write(keyFile, of: person) }
        return keyFile
    }

    /// Destroys the keys, durably, and then what they sealed. Ends also what is damaged, half begun or half ended.
    func end(_ person: Person) throws {
        try settle(person.uid)
        let name = person.user.fileName
        if let directory = try uidDirectory(person.uid, in: keys) {
            let place = DirectorySync.Place.keysOf(uid: person.uid)
            var isChanged = directorySync.isUnsettled(place)
            for name in [name, Disk.temporaryName(for: name)] {
                guard let status = try disk.status(of: name, in: directory) else { continue }
                isChanged = true
                try destroy(name, status, in: directory)
            }
            if isChanged { try directorySync.sync(directory, place) }
        }
        state.withLockedValue { _ = $0.live.removeValue(forKey: person) }
        do {
            try removeSession(of: person)
        } catch {
            // Without its key it says nothing; the next sweep removes it.
            log.warning("a session file could not be removed", metadata: ["error": "\(error)"])
        }
        removeEmptyDirectories(of: person.uid)
    }

    // MARK: Steps

    private func sessionKey(of person: Person) throws -> Secret {
        if let key = state.withLockedValue({ $0.live[person] }) { return key }
        guard let keyFile = try keyFile(of: person) else { throw StoreError.failed("the user is not logged in") }
        return keyFile.sessionKey
    }

    private func write(_ record: SessionRecord, of person: Person, key: Secret) throws {
        let file = try SessionFile.seal(
            record, uid: person.uid, user: person.user, key: key, algorithms: algorithms, random: random)
        let directory = try existingUIDDirectory(person.uid, in: sessions)
        try file.withUnsafeBytes { bytes in
            try disk.replace(person.user.fileName, in: directory, with: bytes) { () throws(SystemError) in
                try directorySync.sync(directory, .sessionsOf(uid: person.uid))
            }
        }
    }

    private func write(_ keyFile: KeyFile, of person: Person) throws {
        let directory = try existingUIDDirectory(person.uid, in: keys)
        try keyFile.withEncoded(check: { try names.check($0, uid: person.uid, user: person.user, into: $1) }) { bytes in
            try disk.replace(person.user.fileName, in: directory, with: bytes) { () throws(SystemError) in
                try directorySync.sync(directory, .keysOf(uid: person.uid))
            }
        }
    }

    /// A full disk must not keep anybody from ending something (F4): the reserve is there for that.
    private func givingUpReserve(_ body: () throws -> Void) throws {
        do {
            try body()
        } catch let error as SystemError where error.isNoSpace {
            guard try reserve.release() else { throw error }
            try body()
        }
    }

    private func destroy(_ name: FileName, _ status: FileStatus, in directory: Directory) throws {
        if status.kind == .directory { return try disk.removeDirectory(name, in: directory) }
        do {
            try givingUpReserve { try disk.overwrite(name, in: directory) }
        } catch let error as SystemError where error.isNoSpace {
            // Only a file system that never writes in place says this; there is nothing to overwrite then.
        }
        try disk.unlinkIfPresent(name, in: directory)
    }

    private func removeSession(of person: Person) throws {
        guard let directory = try uidDirectory(person.uid, in: sessions) else { return }
        let name = person.user.fileName
        try disk.unlinkIfPresent(name, in: directory)
        try disk.unlinkIfPresent(Disk.temporaryName(for: name), in: directory)
    }

    private func endDamaged(_ person: Person, _ reason: String) throws {
        counters.damagedLogins.add(1, ordering: .relaxed)
        log.warning("a user is logged out: \(reason)", metadata: ["uid": "\(person.uid)"])
        try end(person)
    }

    // MARK: Directories of a uid

    /// With a uid's last log-in its directories go, too: nothing says that it was ever here.
    func removeEmptyDirectories(of uid: UInt32) {
        claims.ifUnclaimed(uid) {
            let name = FileName(String(uid))
            do {
                for root in [keys, sessions] { try disk.removeDirectoryIfEmpty(name, in: root) }
            } catch {
                log.debug("an empty directory could not be removed", metadata: ["uid": "\(uid)", "error": "\(error)"])
            }
            // Whoever makes them anew makes them durable anew.
            state.withLockedValue { _ = $0.settled.remove(uid) }
        }
    }

    func uidDirectory(_ uid: UInt32, in parent: Directory) throws -> Directory? {
        do {
            return try disk.openDirectory(FileName(String(uid)), in: parent)
        } catch {
            if error.isMissing { return nil }
            throw error
        }
    }

    private func existingUIDDirectory(_ uid: UInt32, in parent: Directory) throws -> Directory {
        try disk.openDirectory(FileName(String(uid)), in: parent)
    }

    private func makeUIDDirectory(_ uid: UInt32, in parent: Directory, _ place: DirectorySync.Place) throws {
        if try uidDirectory(uid, in: parent) == nil {
            // Another log-in of the uid, that of another user, may make it in between.
            try disk.makeDirectoryIfAbsent(FileName(String(uid)), in: parent)
        } else if state.withLockedValue({ $0.settled.contains(uid) }) {
            return
        }
        // Also where another has made it: whether that one has come to its fsync yet is not known.
        try directorySync.sync(parent, place)
    }

    /// Once per uid and run, see above.
    private func settle(_ uid: UInt32) throws {
        if state.withLockedValue({ $0.settled.contains(uid) }) { return }
        guard let keysOfUID = try uidDirectory(uid, in: keys) else { return }
        try directorySync.sync(keys, .keys)
        try directorySync.sync(keysOfUID, .keysOf(uid: uid))
        if let sessionsOfUID = try uidDirectory(uid, in: sessions) {
            try directorySync.sync(sessions, .sessions)
            try directorySync.sync(sessionsOfUID, .sessionsOf(uid: uid))
        }
        state.withLockedValue { _ = $0.settled.insert(uid) }
    }
}

extension UInt32 {
    /// The number that a directory is named after; nil for a name that is none, or is spelled another way.
    init?(name: FileName) {
        let text = String(decoding: name.bytes, as: UTF8.self)
        guard let number = UInt32(text), String(number) == text else { return nil }
        self = number
    }
}
