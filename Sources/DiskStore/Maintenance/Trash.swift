import CacheCore
import NIOConcurrencyHelpers

/// What purge and log-out left behind, moved out of the way in one step and deleted in small ones.
///
/// Nobody can be led out of it: names are looked up in open directories only and no link is followed. A directory found
/// inside something is not walked into; it is moved up beside it and has its turn later. So the walk has no depth, and
/// what is swapped while it goes on (F25) can only make it look again.
struct Trash: Sendable {
    enum Progress {
        /// Nothing is left.
        case empty
        /// Something was deleted or moved; call again.
        case more
        /// What is left cannot be deleted now.
        case stuck
    }

    let disk: Disk
    let directory: Directory
    let random: any RandomSource
    let costs: DiskCosts
    /// One deletes at a time. Others wait for a batch, or where nobody waits for the one that deletes, for a name.
    private let deleting = NIOLock()
    /// How many need the room now.
    private let hurried = NIOLockedValueBox(0)
    private let contents = NIOLockedValueBox(Usage())

    /// Whether somebody waits for its turn to delete, and for the room.
    var isAwaited: Bool { hurried.withLockedValue { $0 > 0 } }

    /// What lies in it as far as is known: what was in it at the start is not counted.
    var usage: Usage { contents.withLockedValue { $0 } }

    /// Moves something, whatever it is, into the trash. It keeps its contents and loses its name.
    func take(_ name: FileName, from source: Directory, holding usage: Usage = Usage()) throws {
        try disk.rename(name, in: source, to: try random.generationID().fileName, in: directory)
        contents.withLockedValue { $0 = $0 + usage }
    }

    /// Deletes at most `budget` names.
    /// - Parameter yield: nil for somebody who waits for the room. Else called after each name, unless such a one has
    ///   come: then that one has its turn, as long as this one might be kept from the processor.
    func emptySome(budget: Int, yield: YieldToOthers? = nil) throws -> Progress {
        if yield == nil { hurried.withLockedValue { $0 += 1 } }
        defer { if yield == nil { hurried.withLockedValue { $0 -= 1 } } }
        return try deleting.withLock { try empty(Turn(budget: budget, yield: yield)) }
    }

    private struct Turn {
        /// Names that may be deleted yet.
        var budget: Int
        let yield: YieldToOthers?

        var isOver: Bool { budget <= 0 }
    }

    /// A name is gone.
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
                    // It cannot be opened or listed: it stays, and what lies behind it goes all the same.
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
                // Something is still in it, or it was swapped: the next round sees.
            }
        } else {
            unlink(entry.name, in: directory, &turn)
        }
    }

    private func empty(_ item: Directory, _ turn: inout Turn) throws {
        try disk.list(item) { child in
            if child.kind != .file, try disk.status(of: child.name, in: item)?.kind == .directory {
                try take(child.name, from: item)
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
            // It stays, and counts as stuck when nothing else can be deleted either.
        }
    }
}
