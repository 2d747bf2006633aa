import CacheCore
import LinuxSupport

extension StoreScan {
    func users(_ item: Item) throws {
        guard let place = try opened(item) else { return }
        each(in: place) { item in
            guard let uid = UInt32(name: item.name) else { return addFinding(.foreign, item) }
            guard let ofUID = try opened(item) else { return }
            each(in: ofUID) { item in
                guard let name = GenerationName(item.name) else { return addFinding(.foreign, item) }
                guard let place = try opened(item) else { return }
                try generation(name, uid: uid, item, place)
            }
        }
    }

    private func generation(_ name: GenerationName, uid: UInt32, _ item: Item, _ place: InspectedDirectory) throws {
        let owner = HashedOwner(uid: uid, user: name.user)
        guard case .whole(let key, _) = try key(of: owner), key.generation == name.generation else {
            return addFinding(.imagesWithoutKey, item)
        }
        fitting.insert(.imagesWithoutKey)
        guard opensImages else { return }
        let opener = EntryOpener(
            owner: EntryHeader.owner(of: Generation(number: 0, owner: owner, id: name.generation, isNew: false)),
            cipher: try EntryCipher(key: key.imageKey, algorithms: store.algorithms))
        each(in: place) { item in
            if disk.temporaries.isTemporary(item.name) { return temporary(item) }
            guard let number = BucketName.bucket(of: item.name) else { return addFinding(.foreign, item) }
            guard let bucket = try opened(item) else { return }
            report.held.bytes += store.costs.directory
            each(in: bucket) { item in
                if disk.temporaries.isTemporary(item.name) { return temporary(item) }
                guard let address = EntryAddress(item.name) else { return addFinding(.foreign, item) }
                guard isPlain(item) else { return }
                if address.bucket != number { return addFinding(.misplaced, item) }
                try entry(item, at: address, with: opener)
            }
        }
    }

    private struct EntryOpener {
        let owner: [UInt8]
        let cipher: EntryCipher
    }

    private func entry(_ item: Item, at address: EntryAddress, with opener: EntryOpener) throws {
        let file = try disk.open(item.name, in: item.parent.directory, for: .reading)
        let status = try file.status()
        // The file was replaced or removed after it was opened.
        if status.linkCount == 0 { return }
        guard status.kind == .file else { return addFinding(.foreign, item) }
        if status.linkCount > 1 { addFinding(.linked, item) }
        // Check the header first, because the length of a file is untrusted.
        let size = Int(clamping: status.size)
        let isHeader = try withUnsafeTemporaryAllocation(byteCount: EntryHeader.size, alignment: 8) { header in
            let count = try file.read(into: header)
            return count == header.count && EntryHeader(UnsafeRawBufferPointer(header), fileSize: size) != nil
        }
        guard isHeader, size <= store.costs.maximumEntry else { return addFinding(.torn, item) }
        let isWhole = try withWipedMemory(size) { entry -> Bool? in
            guard try file.read(into: entry) == size else { return nil }
            return EntryHeader.open(entry, of: opener.owner, at: address, with: opener.cipher) != nil
        }
        switch isWhole {
        case nil: addFinding(.torn, item)
        case false?: addFinding(.altered, item)
        case true?: report.held = report.held + Usage(images: 1, bytes: store.costs.file(status.size))
        }
    }

    func trash(_ item: Item) throws {
        if let place = try opened(item) { trash(in: place, depth: 1) { _ in } }
    }

    func trash(in place: InspectedDirectory, depth: Int, _ note: (Item) throws -> Void) {
        each(in: place) { item in
            try note(item)
            guard item.status.kind == .directory else {
                report.trash = report.trash + Usage(images: 1, bytes: store.costs.file(item.status.size))
                return
            }
            // As in the quotas, buckets count and the generation's own directory does not.
            if depth > 1 { report.trash.bytes += store.costs.directory }
            // Deepest case: a generation, a bucket, and a directory in place of an entry.
            guard depth <= 3, let directory = try disk.existingDirectory(item.name, in: place.directory) else { return }
            trash(in: InspectedDirectory(directory: directory, path: item.path), depth: depth + 1, note)
        }
    }
}
