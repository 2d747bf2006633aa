import CacheCore
import LinuxSupport

extension InspectedStore {
    /// Everything that bears a name of the user's, wherever names of users are. It opens nothing of the user's: names
    /// need no key but that of names.
    func traces(of user: OpaqueID, uid: UInt32?) throws -> UserTraces {
        let look = StoreScan(self)
        let roots = namedRoots(look)
        look.markers()
        var uids = Set([uid].compactMap { $0 })
        if uid == nil {
            for (root, _) in roots { look.each(in: root) { if let uid = UInt32(name: $0.name) { uids.insert(uid) } } }
        }
        var found = UserTraces()
        found.pendingLogouts = look.report.pendingLogouts.filter { uid == nil || uid == $0.key }

        // By the digits that all names of the user begin with, whatever directory somebody has moved them to.
        var owners: [ArraySlice<UInt8>: UInt32] = [:]
        for uid in uids { owners[try names.name(of: Owner(uid: uid, user: user)).fileName.bytes] = uid }
        func note(_ item: StoreScan.Item, _ kind: UserTraces.Kind) throws {
            guard let uid = owners[item.name.bytes.prefix(64)] else { return }
            let kind = item.name.isTemporaryOfUser ? .temporary : kind
            found.traces.append(UserTraces.Trace(uid: uid, kind: kind, path: item.path))
            if kind == .images, let place = try existing(item) { try count(in: place, look, &found.held) }
        }
        for (root, kind) in roots {
            look.each(in: root) { item in
                if let place = try existing(item) {
                    look.each(in: place) { try note($0, kind) }
                } else if UInt32(name: item.name) != nil {
                    look.passOver(item.path, "is no directory")
                }
            }
        }
        look.attempt(cache.path) {
            guard let trash = try disk.existingDirectory("trash", in: cache.directory) else { return }
            look.trash(in: InspectedDirectory(directory: trash, path: cache.path + "/trash"), depth: 1) {
                try note($0, .images)
            }
        }
        found.trash = look.report.trash
        found.traces.sort { $0.path < $1.path }
        // Where nothing could be seen there may be something.
        let unseen = look.findings.filter { [.badMedium, .untrustedMarkers].contains($0.problem) }
        found.unread = (look.unread + unseen.map { UnreadPart(path: $0.path, reason: $0.what) })
            .sorted { $0.path < $1.path }
        return found
    }

    /// The directories below whose directories of uids things are named after users.
    private func namedRoots(_ look: StoreScan) -> [(InspectedDirectory, UserTraces.Kind)] {
        var found: [(InspectedDirectory, UserTraces.Kind)] = []
        func add(_ name: FileName, in home: StoreHome, _ kind: UserTraces.Kind) {
            let path = "\(home.path)/\(name.text)"
            look.attempt(path) {
                guard let status = try disk.status(of: name, in: home.directory) else { return }
                guard status.kind == .directory else { return look.passOver(path, "is no directory") }
                let directory = try disk.openDirectory(name, in: home.directory)
                found.append((InspectedDirectory(directory: directory, path: path), kind))
            }
        }
        add("keys", in: keysHome, .key)
        add("sessions", in: state, .session)
        add("users", in: cache, .images)
        // Keys that another configuration has left.
        look.attempt(state.path) { if try !keysHome.isSame(as: state) { add("keys", in: state, .key) } }
        return found
    }

    private func existing(_ item: StoreScan.Item) throws -> InspectedDirectory? {
        guard item.status.kind == .directory else { return nil }
        return try disk.existingDirectory(item.name, in: item.parent.directory).map {
            InspectedDirectory(directory: $0, path: item.path)
        }
    }

    /// The files in the buckets of a generation.
    private func count(in place: InspectedDirectory, _ look: StoreScan, _ usage: inout Usage) throws {
        var counted = Usage()
        look.each(in: place) { item in
            guard let bucket = try existing(item) else { return }
            counted.bytes += costs.directory
            look.each(in: bucket) { item in
                counted = counted + Usage(images: 1, bytes: costs.file(item.status.size))
            }
        }
        usage = usage + counted
    }
}
