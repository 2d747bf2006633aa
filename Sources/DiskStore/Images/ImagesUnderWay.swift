import NIOConcurrencyHelpers

/// Temporary files that may be there, and of which profile the image in each is: one on its way to its name, or one
/// that another has replaced and that is about to go.
///
/// A purge of the profile removes them (F78): else, after a kill behind its receipt, a file would be left that a living
/// key opens. It does not wait for whoever writes one. Who has made a file looks whether it is still noted before it
/// writes into it, and again before it lets it appear.
///
/// A file that could not be removed stays noted as left over. It goes before the next image is written, or nothing is
/// written: so there are never more than there were writers at once (I8).
final class ImagesUnderWay: Sendable {
    private struct Note {
        let profile: HashedName
        /// Its number.
        let generation: UInt64
        var isLeftOver = false
    }

    private let noted = NIOLockedValueBox<[FileName: Note]>([:])

    /// Before the file is made.
    func begin(_ file: FileName, of profile: HashedName, in generation: Generation) {
        noted.withLockedValue { $0[file] = Note(profile: profile, generation: generation.number) }
    }

    func contains(_ file: FileName) -> Bool { noted.withLockedValue { $0[file] != nil } }

    /// When no file of that name is there any more.
    func end(_ file: FileName) { noted.withLockedValue { $0[file] = nil } }

    /// Nobody works on the file any more, and it is still there.
    func leaveOver(_ file: FileName) { noted.withLockedValue { $0[file]?.isLeftOver = true } }

    func leftOver(in generation: Generation) -> [FileName] {
        noted.withLockedValue { $0.filter { $1.generation == generation.number && $1.isLeftOver }.map(\.key) }
    }

    /// A profile's name belongs to one generation.
    func files(of profile: HashedName) -> [FileName] {
        noted.withLockedValue { $0.filter { $1.profile == profile }.map(\.key) }
    }

    /// The generation is gone, and its directory with it.
    func forget(_ generation: Generation) {
        noted.withLockedValue { $0 = $0.filter { $1.generation != generation.number } }
    }

    var count: Int { noted.withLockedValue { $0.count } }
}
