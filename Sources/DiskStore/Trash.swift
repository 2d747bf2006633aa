import NIOConcurrencyHelpers
import ThumbnailCache

/// What purge and log-out left behind, moved out of the way in one step and deleted in small ones.
///
/// Nobody can be led out of it: names are looked up in open directories only and no link is followed. A directory found
/// inside something is not walked into; it is moved up beside it and has its turn later. So the walk has no depth, and
/// what is swapped while it goes on (F25) can only make it look again.
final class Trash: Sendable {
    enum Progress {
        /// Nothing is left.
        case empty
        /// Something was deleted or moved; call again.
        case more
        /// What is left cannot be deleted now.
        case stuck
    }

    private let disk: Disk
    private let directory: Directory
    private let random: any RandomSource
    /// One deletes at a time; others wait for a batch at most.
    private let deleting = NIOLock()
    private let held = NIOLockedValueBox(Usage())

    init(disk: Disk, directory: Directory, random: any RandomSource) {
        self.disk = disk
        self.directory = directory
        self.random = random
    }

    /// What lies in it as far as is known: what was in it at the start is not counted.
    var usage: Usage { held.withLockedValue { $0 } }

    /// Moves something, whatever it is, into the trash. It keeps its contents and loses its name.
    func take(_ name: FileName, from place: Directory, holding usage: Usage = Usage()) throws {
        try disk.rename(name, in: place, to: try random.generationID().fileName, in: directory)
        held.withLockedValue { $0 = $0 + usage }
    }

    /// Deletes at most `budget` names.
    func emptySome(budget: Int) throws -> Progress {
        try deleting.withLock {
            var left = budget
            while left > 0 {
                let before = left
                var isEmpty = true
                try disk.list(directory) { entry in
                    isEmpty = false
                    do {
                        try delete(entry, budget: &left)
                    } catch {
                        // It cannot be opened or listed: it stays, and what lies behind it goes all the same.
                    }
                    return left > 0
                }
                if isEmpty {
                    held.withLockedValue { $0 = Usage() }
                    return .empty
                }
                if left == before { return .stuck }
            }
            return .more
        }
    }

    private func delete(_ entry: DirectoryEntry, budget: inout Int) throws {
        if entry.kind != .file, let item = try openedIfDirectory(entry.name) {
            try empty(item, budget: &budget)
            guard budget > 0 else { return }
            do {
                try disk.removeDirectory(entry.name, in: directory)
                budget -= 1
            } catch {
                // Something is still in it, or it was swapped: the next round sees.
            }
        } else {
            unlink(entry.name, in: directory, budget: &budget)
        }
    }

    private func empty(_ item: Directory, budget: inout Int) throws {
        try disk.list(item) { child in
            let isMoved = try child.kind != .file && moveUpIfDirectory(child.name, from: item)
            if isMoved {
                budget -= 1
            } else {
                unlink(child.name, in: item, budget: &budget)
            }
            return budget > 0
        }
    }

    private func openedIfDirectory(_ name: FileName) throws -> Directory? {
        do {
            return try disk.openDirectory(name, in: directory)
        } catch {
            if error.isOfWrongKind || error.isMissing { return nil }
            throw error
        }
    }

    private func moveUpIfDirectory(_ name: FileName, from item: Directory) throws -> Bool {
        guard let status = try disk.status(of: name, in: item), status.kind == .directory else { return false }
        try take(name, from: item)
        return true
    }

    private func unlink(_ name: FileName, in place: Directory, budget: inout Int) {
        do {
            let status = try disk.status(of: name, in: place)
            try disk.unlinkIfPresent(name, in: place)
            budget -= 1
            let size = Int(status?.size ?? 0)
            held.withLockedValue { held in
                held.images = max(0, held.images - 1)
                held.bytes = max(0, held.bytes - size)
            }
        } catch {
            // It stays, and counts as stuck when nothing else can be deleted either.
        }
    }
}
