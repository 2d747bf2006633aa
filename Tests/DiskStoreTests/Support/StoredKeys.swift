import CacheCore
import Testing

@testable import DiskStore

extension GenerationStore {
    /// The keys of the entries of a profile on disk.
    func imageKeys(of profile: OpaqueID) throws -> [ImageKey] {
        let store = try #require(self as? DiskGenerationStore)
        let addresses = try store.whileOpen {
            try store.withCipher { cipher in
                try store.files.addresses(of: try cipher.names.profileName(of: profile), in: store.generation)
            }
        }
        return addresses.map { ImageKey(profile: profile, code: $0.code) }
    }
}
