import NIOConcurrencyHelpers

/// The temporary files of images, with the profile whose image each contains: a new image before its commit, or a
/// replaced one about to be removed. Also files of earlier runs that could not be removed.
///
/// A purge of the profile removes them (F78): after a kill, a current key would open them. The purge does not wait for
/// writers, which look for their file here before the commit.
///
/// A file of this run that could not be removed stays registered as left over, and must be removed before the next
/// image is written, so that there are never more than concurrent writers (I8).
final class TemporaryFileRegistry: Sendable {
    private struct Entry {
        /// Nil if an earlier run has left the file.
        let profile: HashedName?
        let generation: UInt64
        let bucket: UInt8
        var isLeftOver = false
    }

    private let entries = NIOLockedValueBox<[FileName: Entry]>([:])

    /// Registers a new file. The commit lock is held.
    func register(_ file: FileName, of profile: HashedName, in generation: Generation) {
        entries.withLockedValue {
            $0[file] = Entry(profile: profile, generation: generation.number, bucket: profile.bucket)
        }
    }

    /// Registers a file that an earlier run has left. The commit lock is held.
    func register(_ file: FileName, ofEarlierRunIn generation: Generation, bucket: UInt8) {
        entries.withLockedValue { $0[file] = Entry(profile: nil, generation: generation.number, bucket: bucket) }
    }

    /// Whether no purge has removed the file. The commit lock is held.
    func contains(_ file: FileName) -> Bool { entries.withLockedValue { $0[file] != nil } }

    func unregister(_ file: FileName) { entries.withLockedValue { $0[file] = nil } }

    /// Marks a file that still exists but that no thread uses any more.
    func markLeftOver(_ file: FileName) { entries.withLockedValue { $0[file]?.isLeftOver = true } }

    func leftOver(in generation: Generation, includingEarlierRuns: Bool) -> [(file: FileName, bucket: UInt8)] {
        entries.withLockedValue { entries in
            entries.filter {
                $1.generation == generation.number && $1.isLeftOver && ($1.profile != nil || includingEarlierRuns)
            }.map { ($0, $1.bucket) }
        }
    }

    /// The files with images of a profile.
    func files(of profile: HashedName) -> [FileName] {
        entries.withLockedValue { $0.filter { $1.profile == profile }.map(\.key) }
    }

    func forget(_ generation: Generation) {
        entries.withLockedValue { $0 = $0.filter { $1.generation != generation.number } }
    }

    var count: Int { entries.withLockedValue { $0.count } }
}
