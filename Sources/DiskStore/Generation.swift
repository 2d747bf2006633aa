import Synchronization
import ThumbnailCache

/// One generation as a place on disk: whose it is and what its directory is called. It has no key; see ``Vault``.
final class Generation: Sendable {
    /// Counts the generations met in this run: a short key for caches and accounts.
    let number: UInt64
    let uid: UInt32
    let name: GenerationName
    /// Made anew each time: there may be tens of thousands of generations, and few whose directory is opened.
    var directoryName: FileName { name.fileName }
    /// In place, since a box would take as much memory again as all the rest. No images but -1 while it is not known.
    private let lastImages = Atomic<Int>(-1)
    private let lastBytes = Atomic<Int>(0)

    init(number: UInt64, uid: UInt32, name: GenerationName) {
        self.number = number
        self.uid = uid
        self.name = name
    }

    /// What it held when its account was closed; nil before.
    var lastUsage: Usage? {
        let images = lastImages.load(ordering: .acquiring)
        return images < 0 ? nil : Usage(images: images, bytes: lastBytes.load(ordering: .relaxed))
    }

    /// Called once, when its account is closed.
    func close(holding usage: Usage) {
        lastBytes.store(usage.bytes, ordering: .relaxed)
        lastImages.store(usage.images, ordering: .releasing)
    }

    struct Bucket: Hashable {
        let generation: UInt64
        let bucket: UInt8
    }

    func bucket(_ bucket: UInt8) -> Bucket {
        Bucket(generation: number, bucket: bucket)
    }
}
