import NIOConcurrencyHelpers
import ThumbnailCache

/// One generation as a place on disk: whose it is and what its directory is called. It has no key; see ``Vault``.
final class Generation: Sendable {
    /// Counts the generations met in this run: a short key for caches and accounts.
    let number: UInt64
    let uid: UInt32
    let name: GenerationName
    /// Made anew each time: there may be tens of thousands of generations, and few whose directory is opened.
    var directoryName: FileName { name.fileName }
    /// What it held when its account was closed.
    let lastUsage = NIOLockedValueBox<Usage?>(nil)

    init(number: UInt64, uid: UInt32, name: GenerationName) {
        self.number = number
        self.uid = uid
        self.name = name
    }

    struct Bucket: Hashable {
        let generation: UInt64
        let bucket: UInt8
    }

    func bucket(_ bucket: UInt8) -> Bucket {
        Bucket(generation: number, bucket: bucket)
    }
}
