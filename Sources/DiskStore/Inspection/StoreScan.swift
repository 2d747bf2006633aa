import CacheCore
import LinuxSupport

/// One scan of a store. Its depth is fixed, so that bind mounts cannot cause an endless loop.
final class StoreScan {
    /// A name in a directory, with its status when it was listed.
    struct Item {
        let name: FileName
        let parent: InspectedDirectory
        let status: FileStatus

        var path: String { parent.path(of: name) }
    }

    enum KeyLookup {
        case none, damaged
        case whole(KeyFile, StoreFinding.FileState)
    }

    let store: InspectedStore
    /// The paths to scan and their parents; nil for everything.
    private let only: Set<String>?
    private(set) var findings: Set<StoreFinding> = []
    private(set) var unread: Set<UnreadPart> = []
    var report = StoreReport()
    /// Problems that do not affect all files of their kind, because one that fits its key was found.
    var fitting: Set<StoreProblem> = []
    let opensImages: Bool
    /// Keys looked up so far.
    private var keys: [HashedOwner: KeyLookup] = [:]

    init(_ store: InspectedStore, at paths: [String]? = nil, opensImages: Bool = true) {
        self.store = store
        self.opensImages = opensImages
        only = paths.map { paths in
            var only = Set(paths)
            for path in paths {
                for (index, character) in zip(path.utf8.indices, path.utf8) where character == UInt8(ascii: "/") {
                    only.insert(String(path[..<index]))
                }
            }
            return only
        }
    }

    var disk: Disk { store.disk }

    func walk() {
        var directories: [(directory: StoreDirectory, names: [String: (Item) throws -> Void])] = []
        func add(_ directory: StoreDirectory, _ names: [String: (Item) throws -> Void]) {
            // Two kinds may share a directory.
            var same: Int?
            attempt(directory.path) { same = try directories.firstIndex { try directory.isSame(as: $0.directory) } }
            if let same { directories[same].names.merge(names) { $1 } } else { directories.append((directory, names)) }
        }
        let plain: (Item) throws -> Void = { _ = self.isPlain($0) }
        add(store.cache, ["VERSION": plain, "lock": plain, "users": users, "trash": trash])
        add(store.state, ["starts": starts, "boot": plain, "lock": plain, "sessions": sessions, "keys": unusedKeys])
        add(store.keysDirectory, ["names.key": plain, "lock": plain, "keys": keyFiles])
        for (configured, names) in directories {
            let place = InspectedDirectory(directory: configured.directory, path: configured.path)
            attempt(place.path) { judgeHome(try configured.directory.status(), at: place.path) }
            // The runtime directory contains files of other programs, such as the socket.
            let isShared = names["users"] == nil && names["sessions"] == nil
            each(in: place) { item in
                if let inspect = names[item.name.text] {
                    try inspect(item)
                } else if item.name.text == "lost+found", item.status.owner == 0 {
                    // Created by the file system.
                } else if names.keys.contains(where: { Disk.temporaryName(for: FileName($0)) == item.name }) {
                    temporary(item)
                } else if !isShared, !store.leads(item.path) {
                    addFinding(.foreign, item)
                }
            }
        }
        pendingFiles()
    }

    // MARK: Steps

    /// Calls `body` for each name in a directory that this scan covers.
    func each(in place: InspectedDirectory, _ body: (Item) throws -> Void) {
        attempt(place.path) {
            for entry in try disk.names(in: place.directory) {
                let path = place.path(of: entry.name)
                if let only, !only.contains(path) { continue }
                attempt(path) {
                    guard let status = try disk.status(of: entry.name, in: place.directory) else { return }
                    try body(Item(name: entry.name, parent: place, status: status))
                }
            }
        }
    }

    func attempt(_ path: String, _ body: () throws -> Void) {
        do {
            try body()
        } catch let error as SystemError where error.isMissing || error.isWrongKind {
            // Removed or replaced since it was listed; the next scan decides.
        } catch let error as SystemError where error.isMediumError {
            addFinding(.badMedium, at: path, [], "cannot be read: \(error)")
        } catch {
            skip(path, "\(error)")
        }
    }

    func skip(_ path: String, _ reason: String) { unread.insert(UnreadPart(path: path, reason: reason)) }

    func addFinding(
        _ problem: StoreProblem, at path: String, _ judgedBy: [StoreFinding.FileState], _ detail: String? = nil
    ) {
        findings.insert(StoreFinding(path: path, problem: problem, detail: detail, judgedBy: judgedBy))
    }

    func addFinding(_ problem: StoreProblem, _ item: Item) { addFinding(problem, at: item.path, []) }

    /// Records a temporary file. One that is still being written changes until the next scan.
    func temporary(_ item: Item) {
        addFinding(item.status.kind == .file ? .temporary : .foreign, at: item.path, [.init(item.status)])
    }

    /// Whether this is a plain file; also checks its owner and mode.
    func isPlain(_ item: Item) -> Bool {
        guard item.status.kind == .file else {
            addFinding(.foreign, item)
            return false
        }
        judge(item, mode: 0o600)
        return true
    }

    /// Opens a directory and checks its owner and mode; nil for other kinds of files.
    func opened(_ item: Item) throws -> InspectedDirectory? {
        guard item.status.kind == .directory else {
            addFinding(.foreign, item)
            return nil
        }
        judge(item, mode: 0o700)
        let directory = try disk.openDirectory(item.name, in: item.parent.directory)
        guard try directory.status().device == item.parent.directory.status().device else {
            addFinding(.otherFileSystem, item)
            return nil
        }
        return InspectedDirectory(directory: directory, path: item.path)
    }

    private func judge(_ item: Item, mode: UInt32) {
        let status = item.status
        if status.owner != store.account.uid {
            addFinding(.wrongOwner, at: item.path, [], "belongs to uid \(status.owner) instead of \(store.account.uid)")
        }
        // Ignores set-group-ID, which a directory may inherit and which grants nothing here.
        let found = status.permissions & 0o777
        if found != mode { addFinding(.wrongMode, at: item.path, [], Self.mode(found, insteadOf: mode)) }
    }

    private func judgeHome(_ status: FileStatus, at path: String) {
        if let only, !only.contains(path) { return }
        if status.owner != store.account.uid {
            addFinding(.wrongOwner, at: path, [], "belongs to uid \(status.owner) instead of \(store.account.uid)")
        }
        if status.permissions & 0o022 != 0 {
            addFinding(.wrongMode, at: path, [], Self.mode(status.permissions, insteadOf: 0o700))
        }
    }

    private static func mode(_ found: UInt32, insteadOf right: UInt32) -> String {
        "has mode \(String(found, radix: 8)) instead of \(String(right, radix: 8))"
    }

    // MARK: Logins

    /// Returns the keys of an owner, cached for this scan.
    func key(of owner: HashedOwner) throws -> KeyLookup {
        if let known = keys[owner] { return known }
        let found = try lookUpKey(of: owner)
        keys[owner] = found
        return found
    }

    private func lookUpKey(of owner: HashedOwner) throws -> KeyLookup {
        let name = owner.user.fileName
        guard let root = try disk.existingDirectory("keys", in: store.keysDirectory.directory),
            let directory = try disk.existingDirectory(FileName(String(owner.uid)), in: root),
            // Before reading, so that a file replaced in between differs in the next scan.
            let status = try disk.status(of: name, in: directory), status.kind == .file,
            let file = try disk.contents(of: name, in: directory, limit: KeyFile.size)
        else { return .none }
        let key = try file.withBytes { try KeyFile($0) { try store.names.check($0, of: owner, into: $1) } }
        return key.map { .whole($0, .init(status)) } ?? .damaged
    }

    private func starts(_ item: Item) throws {
        guard isPlain(item) else { return }
        if try StartCounter.isDamaged(in: item.parent.directory, disk: disk, algorithms: store.algorithms) {
            addFinding(.damagedCounter, at: item.path, [.init(item.status)])
        }
    }

    private func keyFiles(_ item: Item) throws {
        try eachOwner(below: item, beside: [EmergencyReserve.fileName]) { item, owner in
            guard isPlain(item) else { return }
            switch try key(of: owner) {
            case .none: break
            case .damaged: addFinding(.damagedKey, at: item.path, [.init(item.status)])
            case .whole(_, let state):
                fitting.insert(.damagedKey)
                let sessions = try disk.existingDirectory("sessions", in: store.state.directory)
                let ofUID = try sessions.flatMap { try disk.existingDirectory(item.parent.uidName, in: $0) }
                let session = try ofUID.flatMap { try disk.status(of: item.name, in: $0) }
                if session == nil { addFinding(.keyWithoutSession, at: item.path, [state]) }
            }
        }
    }

    private func sessions(_ item: Item) throws {
        try eachOwner(below: item, beside: []) { item, owner in
            guard isPlain(item) else { return }
            switch try key(of: owner) {
            // The damaged key file is reported instead.
            case .damaged: break
            case .none: addFinding(.sessionWithoutKey, at: item.path, [.init(item.status)])
            case .whole(let key, let state):
                let file = try disk.contents(
                    of: item.name, in: item.parent.directory, limit: SessionFile.maximumLength)
                guard let file else { return }
                let record = try SessionFile.open(
                    file, of: owner, key: key.sessionKey, algorithms: store.algorithms)
                if let record, try store.names.name(of: Owner(uid: owner.uid, user: record.user)) == owner.user {
                    report.users += 1
                    fitting.insert(.sessionWithoutKey)
                } else {
                    addFinding(.damagedSession, at: item.path, [.init(item.status), state])
                }
            }
        }
    }

    /// With keys in another directory, nothing may be here that a later configuration could find (F51).
    private func unusedKeys(_ item: Item) throws {
        try eachOwner(below: item, beside: [EmergencyReserve.fileName]) { item, _ in addFinding(.foreign, item) }
    }

    /// Calls `body` for each user name in the directories per uid. An empty directory is no problem; the next start
    /// removes it.
    private func eachOwner(
        below root: Item, beside known: [FileName], _ body: (Item, HashedOwner) throws -> Void
    ) throws {
        guard let place = try opened(root) else { return }
        each(in: place) { item in
            if disk.temporaries.isTemporary(item.name) { return temporary(item) }
            if known.contains(item.name) {
                _ = isPlain(item)
                return
            }
            guard let uid = UInt32(name: item.name) else { return addFinding(.foreign, item) }
            guard let ofUID = try opened(item) else { return }
            each(in: ofUID) { item in
                if let user = HashedName(hex: item.name.bytes) {
                    try body(item, HashedOwner(uid: uid, user: user))
                } else if disk.temporaries.isTemporary(item.name) || item.name.isTemporaryOfUser {
                    temporary(item)
                } else {
                    addFinding(.foreign, item)
                }
            }
        }
    }

    // MARK: Pending logouts

    func pendingFiles() {
        guard let pending = store.pending else { return }
        if let only, !only.contains(pending.path) { return }
        let directory: Directory?
        do {
            directory = try pending.open()
        } catch {
            return addFinding(
                .untrustedPendingLogouts, at: pending.path, [], "is not trusted with pending logouts: \(error)")
        }
        guard let directory else { return }
        each(in: InspectedDirectory(directory: directory, path: pending.path)) { item in
            if let pendingFile = PendingLogoutFile(fileName: item.name), item.status.kind == .file {
                report.pendingLogouts[pendingFile.uid, default: 0] += 1
            } else if item.name.text != "lost+found" || item.status.owner != 0 {
                addFinding(.foreign, item)
            }
        }
    }
}

extension FileName {
    /// Whether this is ``Disk/temporaryName(for:)`` of a user's name.
    var isTemporaryOfUser: Bool {
        HashedName(hex: bytes.prefix(64)).map { Disk.temporaryName(for: $0.fileName) == self } ?? false
    }
}

extension InspectedDirectory {
    fileprivate var uidName: FileName { FileName(String(path.split(separator: "/").last ?? "")) }
}
