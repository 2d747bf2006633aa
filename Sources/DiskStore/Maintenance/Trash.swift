import CacheCore
import NIOConcurrencyHelpers

/// Directories of purges and logouts: moved here in one step and deleted in small ones.
///
/// Deletion cannot leave the trash: it uses open directories and follows no links. A subdirectory is moved up to the
/// trash's own level and deleted later, so there is no recursion, and concurrent renames (F25) only cause another pass.
struct Trash: Sendable {
    enum Progress {
        case empty
        /// Something was deleted or moved; call again.
        case more
        /// The rest cannot be deleted now.
        case stuck
    }

    let disk: Disk
    let directory: Directory
    let random: any RandomSource
    let costs: DiskCosts
    /// One thread at a time deletes.
    private let deleting = NIOLock()
    /// Number of threads that wait for space.
    private let hurried = NIOLockedValueBox(0)
    private let contents = NIOLockedValueBox(Usage())

    var isAwaited: Bool { hurried.withLockedValue { $0 > 0 } }

    /// Usage as far as known; items found at the start are not counted.
    var usage: Usage { contents.withLockedValue { $0 } }

    /// Moves a file or directory into the trash under a random name.
    func move(_ name: FileName, from source: Directory, holding usage: Usage = Usage()) throws {
        try disk.rename(name, in: source, to: try random.generationID().fileName, in: directory)
        contents.withLockedValue { $0 = $0 + usage }
    }

    /// Deletes at most `budget` names.
    /// - Parameter yield: called after each name; this call then returns if another thread waits for space. Nil for a
    ///   caller that waits for space.
    func emptySome(budget: Int, yield: YieldToOthers? = nil) throws -> Progress {
        if yield == nil { hurried.withLockedValue { $0 += 1 } }
        defer { if yield == nil { hurried.withLockedValue { $0 -= 1 } } }
        return try deleting.withLock { try empty(Turn(budget: budget, yield: yield)) }
    }

    private struct Turn {
        var budget: Int
        let yield: YieldToOthers?

        var isOver: Bool { budget <= 0 }
    }

    private func count(_ turn: inout Turn) {
        turn.budget -= 1
        guard let yield = turn.yield else { return }
        if isAwaited { turn.budget = 0 } else { yield() }
    }

    private func empty(_ turn: Turn) throws -> Progress {
        var turn = turn
        while !turn.isOver {
            let before = turn.budget
            var isEmpty = true
            try disk.list(directory) { entry in
                isEmpty = false
                do {
                    try delete(entry, &turn)
                } catch {
                    // It cannot be opened or listed. Go on with the others.
                }
                return !turn.isOver
            }
            if isEmpty {
                contents.withLockedValue { $0 = Usage() }
                return .empty
            }
            if turn.budget == before { return .stuck }
        }
        return .more
    }

    private func delete(_ entry: DirectoryEntry, _ turn: inout Turn) throws {
        if entry.kind != .file, let item = try disk.existingDirectory(entry.name, in: directory) {
            try empty(item, &turn)
            guard !turn.isOver else { return }
            do {
                try disk.removeDirectory(entry.name, in: directory)
                contents.withLockedValue { $0.bytes = max(0, $0.bytes - costs.directory) }
                count(&turn)
            } catch {
                // Not empty, or replaced; the next pass decides.
            }
        } else {
            unlink(entry.name, in: directory, &turn)
        }
    }

    private func empty(_ item: Directory, _ turn: inout Turn) throws {
        try disk.list(item) { child in
            if child.kind != .file, try disk.status(of: child.name, in: item)?.kind == .directory {
                try move(child.name, from: item)
                count(&turn)
            } else {
                unlink(child.name, in: item, &turn)
            }
            return !turn.isOver
        }
    }

    private func unlink(_ name: FileName, in parent: Directory, _ turn: inout Turn) {
        do {
            let size = try disk.status(of: name, in: parent)?.size
            try disk.unlinkIfPresent(name, in: parent)
            contents.withLockedValue { contents in
                contents.images = max(0, contents.images - 1)
                contents.bytes = max(0, contents.bytes - (size.map { costs.file($0) } ?? 0))
            }
            count(&turn)
        } catch {
            // Counts as stuck if nothing else can be deleted.
        }
    }
}
