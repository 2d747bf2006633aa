import NIOConcurrencyHelpers

/// The temporary files that may exist, with the profile whose image each contains: a new image before its commit, or a
/// replaced one about to be removed.
///
/// A purge of the profile removes them (F78): after a kill, a current key would open them. The purge does not wait for
/// writers, which call ``mayWrite(_:)`` before they write the contents and before the commit.
///
/// A file that could not be removed stays registered as left over, and must be removed before the next image is
/// written, so that there are never more than concurrent writers (I8).
final class TemporaryFileRegistry: Sendable {
    private struct Entry {
        let profile: HashedName
        let generation: UInt64
        var isLeftOver = false
        var isWithdrawn = false
    }

    private let entries = NIOLockedValueBox<[FileName: Entry]>([:])

    /// Registers a file. Call this before creating it, or again before removing a file that a purge has unregistered.
    func register(_ file: FileName, of profile: HashedName, in generation: Generation) {
        entries.withLockedValue { $0[file] = Entry(profile: profile, generation: generation.number) }
    }

    /// Whether no purge has withdrawn the file. Call this after creating it.
    func mayWrite(_ file: FileName) -> Bool { entries.withLockedValue { $0[file]?.isWithdrawn == false } }

    func unregister(_ file: FileName) { entries.withLockedValue { $0[file] = nil } }

    /// Marks a file that still exists but that no thread uses any more.
    func markLeftOver(_ file: FileName) { entries.withLockedValue { $0[file]?.isLeftOver = true } }

    func leftOver(in generation: Generation) -> [FileName] {
        entries.withLockedValue { $0.filter { $1.generation == generation.number && $1.isLeftOver }.map(\.key) }
    }

    /// Returns the files of a profile, to be removed. From now on, ``mayWrite(_:)`` is false for them: a writer may create
    /// its file after the purge has found none under that name.
    func withdrawFiles(of profile: HashedName) -> [FileName] {
        entries.withLockedValue { entries in
            let files = entries.filter { $1.profile == profile }.map(\.key)
            for file in files { entries[file]?.isWithdrawn = true }
            return files
        }
    }

    func forget(_ generation: Generation) {
        entries.withLockedValue { $0 = $0.filter { $1.generation != generation.number } }
    }

    var count: Int { entries.withLockedValue { $0.count } }
}
