import NIOConcurrencyHelpers
import ThumbnailCache

/// Crypters that are not in use, by the generation whose key they hold; at most `capacity`, longest idle first out, so
/// that thousands of users cost no memory for contexts they seldom need.
final class CrypterPool: Sendable {
    private let idle = NIOLockedValueBox<[(generation: UInt64, crypter: Crypter)]>([])
    private let capacity: Int
    let algorithms: Algorithms

    init(algorithms: Algorithms, capacity: Int = 32) {
        self.algorithms = algorithms
        self.capacity = capacity
    }

    /// One that holds `key`, idle or new.
    func take(for generation: UInt64, key: Secret) throws -> Crypter {
        let found = idle.withLockedValue { idle -> Crypter? in
            guard let index = idle.lastIndex(where: { $0.generation == generation }) else { return nil }
            return idle.remove(at: index).crypter
        }
        return try found ?? Crypter(key: key, algorithms: algorithms)
    }

    func giveBack(_ crypter: Crypter, for generation: UInt64) {
        _ = idle.withLockedValue { idle -> Crypter? in
            let out = idle.count >= capacity ? idle.removeFirst().crypter : nil
            idle.append((generation, crypter))
            return out
        }
    }

    /// Frees, and thereby wipes, all that hold the key of a generation. None of them is in use any more.
    func removeAll(of generation: UInt64) {
        _ = idle.withLockedValue { idle in
            let out = idle.filter { $0.generation == generation }
            idle.removeAll { $0.generation == generation }
            return out.map(\.crypter)
        }
    }
}
