import CacheCore
import LinuxSupport

extension InspectedStore {
    /// Finds all file names that belong to a user. Needs no key but names.key.
    func traces(of user: OpaqueID, uid: UInt32?) throws -> UserTraces {
        let scan = StoreScan(self)
        let roots = namedRoots(scan)
        scan.pendingFiles()
        var uids = Set([uid].compactMap { $0 })
        if uid == nil {
            for (root, _) in roots { scan.each(in: root) { if let uid = UInt32(name: $0.name) { uids.insert(uid) } } }
        }
        var found = UserTraces()
        found.pendingLogouts = scan.report.pendingLogouts.filter { uid == nil || uid == $0.key }

        // Compare the digits with which all names of the user begin, whatever directory they are in.
        var owners: [ArraySlice<UInt8>: UInt32] = [:]
        for uid in uids { owners[try names.name(of: Owner(uid: uid, user: user)).fileName.bytes] = uid }
        func note(_ item: StoreScan.Item, _ kind: UserTraces.Kind) throws {
            guard let uid = owners[item.name.bytes.prefix(64)] else { return }
            let kind = item.name.isTemporaryOfUser ? .temporary : kind
            found.traces.append(UserTraces.Trace(uid: uid, kind: kind, path: item.path))
            if kind == .images, let place = try existing(item) { try count(in: place, scan, &found.held) }
        }
        for (root, kind) in roots {
            scan.each(in: root) { item in
                if let place = try existing(item) {
                    scan.each(in: place) { try note($0, kind) }
                } else if UInt32(name: item.name) != nil {
                    scan.skip(item.path, "is not a directory")
                }
            }
        }
        scan.attempt(cache.path) {
            guard let trash = try disk.existingDirectory("trash", in: cache.directory) else { return }
            scan.trash(in: InspectedDirectory(directory: trash, path: cache.path + "/trash"), depth: 1) {
                try note($0, .images)
            }
        }
        found.trash = scan.report.trash
        found.traces.sort { $0.path < $1.path }
        // Places that could not be read may contain traces.
        let unseen = scan.findings.filter { [.badMedium, .untrustedPendingLogouts].contains($0.problem) }
        found.unread = (scan.unread + unseen.map { UnreadPart(path: $0.path, reason: $0.what) })
            .sorted { $0.path < $1.path }
        return found
    }

    /// Returns the directories whose subdirectories per uid contain names of users.
    private func namedRoots(_ scan: StoreScan) -> [(InspectedDirectory, UserTraces.Kind)] {
        var found: [(InspectedDirectory, UserTraces.Kind)] = []
        func add(_ name: FileName, in home: StoreDirectory, _ kind: UserTraces.Kind) {
            let path = "\(home.path)/\(name.text)"
            scan.attempt(path) {
                guard let status = try disk.status(of: name, in: home.directory) else { return }
                guard status.kind == .directory else { return scan.skip(path, "is not a directory") }
                let directory = try disk.openDirectory(name, in: home.directory)
                found.append((InspectedDirectory(directory: directory, path: path), kind))
            }
        }
        add("keys", in: keysDirectory, .key)
        add("sessions", in: state, .session)
        add("users", in: cache, .images)
        // Keys left by another configuration.
        scan.attempt(state.path) { if try !keysDirectory.isSame(as: state) { add("keys", in: state, .key) } }
        return found
    }

    private func existing(_ item: StoreScan.Item) throws -> InspectedDirectory? {
        guard item.status.kind == .directory else { return nil }
        return try disk.existingDirectory(item.name, in: item.parent.directory).map {
            InspectedDirectory(directory: $0, path: item.path)
        }
    }

    private func count(in place: InspectedDirectory, _ scan: StoreScan, _ usage: inout Usage) throws {
        var counted = Usage()
        scan.each(in: place) { item in
            guard let bucket = try existing(item) else { return }
            counted.bytes += costs.directory
            scan.each(in: bucket) { item in
                if disk.temporaries.isTemporary(item.name) { return }
                counted = counted + Usage(images: 1, bytes: costs.file(item.status.size))
            }
        }
        usage = usage + counted
    }
}
