import CacheCore
import LinuxSupport

/// One walk through a store. Its depth is that of a store: where directories lead back to themselves, as bind mounts
/// can, it does not follow them.
final class StoreScan {
    /// A name in a directory, and what was there a moment ago.
    struct Item {
        let name: FileName
        let parent: InspectedDirectory
        let status: FileStatus

        var path: String { parent.path(of: name) }
    }

    enum KeyLook {
        case none, damaged
        case whole(KeyFile, StoreFinding.FileState)
    }

    let store: InspectedStore
    /// The paths that are looked at, and those on the way to them; nil for everything.
    private let only: Set<String>?
    private(set) var findings: Set<StoreFinding> = []
    private(set) var unread: Set<UnreadPart> = []
    var report = StoreReport()
    /// What is not wrong with all of its kind: something was found that fits its key.
    var fitting: Set<StoreProblem> = []
    let opensImages: Bool
    /// Those looked up so far.
    private var keys: [HashedOwner: KeyLook] = [:]

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
        var homes: [(home: StoreHome, names: [String: (Item) throws -> Void])] = []
        func add(_ home: StoreHome, _ names: [String: (Item) throws -> Void]) {
            // Two roles may share a directory.
            var same: Int?
            attempt(home.path) { same = try homes.firstIndex { try home.isSame(as: $0.home) } }
            if let same { homes[same].names.merge(names) { $1 } } else { homes.append((home, names)) }
        }
        let plain: (Item) throws -> Void = { _ = self.isPlain($0) }
        add(store.cache, ["VERSION": plain, "lock": plain, "users": users, "trash": trash])
        add(store.state, ["starts": starts, "boot": plain, "lock": plain, "sessions": sessions, "keys": unusedKeys])
        add(store.keysHome, ["names.key": plain, "lock": plain, "keys": keyFiles])
        for (home, names) in homes {
            let place = InspectedDirectory(directory: home.directory, path: home.path)
            attempt(place.path) { judgeHome(try home.directory.status(), at: place.path) }
            // The directory of a runtime belongs to others, too: the socket lies there.
            let isShared = names["users"] == nil && names["sessions"] == nil
            each(in: place) { item in
                if let look = names[item.name.text] {
                    try look(item)
                } else if item.name.text == "lost+found", item.status.owner == 0 {
                    // Of the file system, where one was made for the store.
                } else if names.keys.contains(where: { Disk.temporaryName(for: FileName($0)) == item.name }) {
                    temporary(item)
                } else if !isShared, !store.leads(item.path) {
                    find(.foreign, item)
                }
            }
        }
        markers()
    }

    // MARK: Steps

    /// Calls `body` for each name in a directory that this look is about.
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
        } catch let error as SystemError where error.isMissing || error.isOfWrongKind {
            // It went, or was swapped for something else, since it was listed: the next look sees.
        } catch let error as SystemError where error.isOfMedium {
            find(.badMedium, at: path, [], "cannot be read back: \(error)")
        } catch {
            passOver(path, "\(error)")
        }
    }

    /// Something is not looked into, and nothing is known of what may be in it.
    func passOver(_ path: String, _ reason: String) { unread.insert(UnreadPart(path: path, reason: reason)) }

    func find(_ problem: StoreProblem, at path: String, _ judgedBy: [StoreFinding.FileState], _ detail: String? = nil) {
        findings.insert(StoreFinding(path: path, problem: problem, detail: detail, judgedBy: judgedBy))
    }

    /// Something whose place alone says that it is wrong.
    func find(_ problem: StoreProblem, _ item: Item) { find(problem, at: item.path, []) }

    /// One that is still written, or replaced by the next, is another one each time.
    func temporary(_ item: Item) {
        find(item.status.kind == .file ? .temporary : .foreign, at: item.path, [.init(item.status)])
    }

    /// Whether it is a file of the store's, as the store makes them.
    func isPlain(_ item: Item) -> Bool {
        guard item.status.kind == .file else {
            find(.foreign, item)
            return false
        }
        judge(item, mode: 0o600)
        return true
    }

    /// Opens a directory of the store's; nil for what is none.
    func opened(_ item: Item) throws -> InspectedDirectory? {
        guard item.status.kind == .directory else {
            find(.foreign, item)
            return nil
        }
        judge(item, mode: 0o700)
        let directory = try disk.openDirectory(item.name, in: item.parent.directory)
        guard try directory.status().device == item.parent.directory.status().device else {
            find(.otherFileSystem, item)
            return nil
        }
        return InspectedDirectory(directory: directory, path: item.path)
    }

    private func judge(_ item: Item, mode: UInt32) {
        let status = item.status
        if status.owner != store.account.uid {
            find(.wrongOwner, at: item.path, [], "belongs to uid \(status.owner) instead of \(store.account.uid)")
        }
        // A directory may have inherited set-group-ID, which gives nobody anything here.
        let found = status.permissions & 0o777
        if found != mode { find(.wrongMode, at: item.path, [], Self.mode(found, insteadOf: mode)) }
    }

    private func judgeHome(_ status: FileStatus, at path: String) {
        if let only, !only.contains(path) { return }
        if status.owner != store.account.uid {
            find(.wrongOwner, at: path, [], "belongs to uid \(status.owner) instead of \(store.account.uid)")
        }
        if status.permissions & 0o022 != 0 {
            find(.wrongMode, at: path, [], Self.mode(status.permissions, insteadOf: 0o700))
        }
    }

    private static func mode(_ found: UInt32, insteadOf right: UInt32) -> String {
        "has mode \(String(found, radix: 8)) instead of \(String(right, radix: 8))"
    }

    // MARK: Log-ins

    /// The keys of an owner. Looked up once in a look.
    func key(of owner: HashedOwner) throws -> KeyLook {
        if let known = keys[owner] { return known }
        let found = try lookUpKey(of: owner)
        keys[owner] = found
        return found
    }

    private func lookUpKey(of owner: HashedOwner) throws -> KeyLook {
        let name = owner.user.fileName
        guard let root = try disk.existingDirectory("keys", in: store.keysHome.directory),
            let directory = try disk.existingDirectory(FileName(String(owner.uid)), in: root),
            // Before the bytes: one that replaces it in between is another to the next look.
            let status = try disk.status(of: name, in: directory), status.kind == .file,
            let file = try disk.contents(of: name, in: directory, limit: KeyFile.size)
        else { return .none }
        let key = try file.withBytes { try KeyFile($0) { try store.names.check($0, of: owner, into: $1) } }
        return key.map { .whole($0, .init(status)) } ?? .damaged
    }

    private func starts(_ item: Item) throws {
        guard isPlain(item) else { return }
        if try StartCounter.isDamaged(in: item.parent.directory, disk: disk, algorithms: store.algorithms) {
            find(.damagedCounter, at: item.path, [.init(item.status)])
        }
    }

    private func keyFiles(_ item: Item) throws {
        try eachOwner(below: item, beside: [EmergencyReserve.fileName]) { item, owner in
            guard isPlain(item) else { return }
            switch try key(of: owner) {
            case .none: break
            case .damaged: find(.damagedKey, at: item.path, [.init(item.status)])
            case .whole(_, let state):
                fitting.insert(.damagedKey)
                let sessions = try disk.existingDirectory("sessions", in: store.state.directory)
                let ofUID = try sessions.flatMap { try disk.existingDirectory(item.parent.uidName, in: $0) }
                let session = try ofUID.flatMap { try disk.status(of: item.name, in: $0) }
                if session == nil { find(.keyWithoutSession, at: item.path, [state]) }
            }
        }
    }

    private func sessions(_ item: Item) throws {
        try eachOwner(below: item, beside: []) { item, owner in
            guard isPlain(item) else { return }
            switch try key(of: owner) {
            // What a damaged key file sealed is not known: the key file is the finding.
            case .damaged: break
            case .none: find(.sessionWithoutKey, at: item.path, [.init(item.status)])
            case .whole(let key, let state):
                let file = try disk.contents(
                    of: item.name, in: item.parent.directory, limit: SessionFile.longest)
                guard let file else { return }
                let record = try SessionFile.open(
                    file, of: owner, key: key.sessionKey, algorithms: store.algorithms)
                if let record, try store.names.name(of: Owner(uid: owner.uid, user: record.user)) == owner.user {
                    report.users += 1
                    fitting.insert(.sessionWithoutKey)
                } else {
                    find(.damagedSession, at: item.path, [.init(item.status), state])
                }
            }
        }
    }

    /// Keys are looked for elsewhere: here nothing may lie that a run with another configuration could find (F51).
    private func unusedKeys(_ item: Item) throws {
        try eachOwner(below: item, beside: [EmergencyReserve.fileName]) { item, _ in find(.foreign, item) }
    }

    /// Calls `body` for what bears a user's name in the directories of uids. One without anything in it says nothing,
    /// and goes after the next start.
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
            guard let uid = UInt32(name: item.name) else { return find(.foreign, item) }
            guard let ofUID = try opened(item) else { return }
            each(in: ofUID) { item in
                if let user = HashedName(hex: item.name.bytes) {
                    try body(item, HashedOwner(uid: uid, user: user))
                } else if disk.temporaries.isTemporary(item.name) || item.name.isTemporaryOfUser {
                    temporary(item)
                } else {
                    find(.foreign, item)
                }
            }
        }
    }

    // MARK: Markers

    /// What waits in the directory of log-outs.
    func markers() {
        guard let pending = store.pending else { return }
        if let only, !only.contains(pending.path) { return }
        let directory: Directory?
        do {
            directory = try pending.open()
        } catch {
            return find(.untrustedMarkers, at: pending.path, [], "cannot be trusted with log-outs: \(error)")
        }
        guard let directory else { return }
        each(in: InspectedDirectory(directory: directory, path: pending.path)) { item in
            if let marker = LogoutMarker(fileName: item.name), item.status.kind == .file {
                report.pendingLogouts[marker.uid, default: 0] += 1
            } else if item.name.text != "lost+found" || item.status.owner != 0 {
                find(.foreign, item)
            }
        }
    }
}

extension FileName {
    /// Whether it is ``Disk/temporaryName(for:)`` of a user's name.
    var isTemporaryOfUser: Bool {
        HashedName(hex: bytes.prefix(64)).map { Disk.temporaryName(for: $0.fileName) == self } ?? false
    }
}

extension InspectedDirectory {
    /// Its own name.
    fileprivate var uidName: FileName { FileName(String(path.split(separator: "/").last ?? "")) }
}
