import LinuxSupport
import NIOConcurrencyHelpers

/// Makes what happened in a directory durable.
///
/// After an fsync has failed a second one that succeeds proves nothing: the kernel may have dropped what it could not
/// write (F7). So a directory whose fsync failed is changed anew before the next one.
final class DirectorySync: Sendable {
    enum Place: Hashable, Sendable {
        case keys, sessions
        case keysOf(uid: UInt32), sessionsOf(uid: UInt32)
        case generation(UInt64)
        case bucket(generation: UInt64, bucket: UInt8)
    }

    private let disk: Disk
    private let temporaries: TemporaryNames
    private let state = NIOLockedValueBox(State())

    private struct State {
        /// The last fsync of each place that failed, by its number, with what the system said.
        var failures: [Place: (number: UInt64, error: SystemError)] = [:]
        var last: UInt64 = 0
    }

    init(disk: Disk, temporaries: TemporaryNames) {
        self.disk = disk
        self.temporaries = temporaries
    }

    /// Whether an fsync of a directory failed and none that proves anything has succeeded since.
    func isUnsettled(_ place: Place) -> Bool { failure(of: place) != nil }

    private func failure(of place: Place) -> (number: UInt64, error: SystemError)? {
        state.withLockedValue { $0.failures[place] }
    }

    /// - Throws: also when this fsync succeeded and another of the same place failed meanwhile: what was to be made
    ///   durable may be what the kernel dropped then.
    func sync(_ directory: Directory, _ place: Place) throws(SystemError) {
        let before = failure(of: place)?.number
        if before != nil {
            let name = temporaries.make()
            _ = try disk.open(name, in: directory, for: .creating)
            try disk.unlink(name, in: directory)
        }
        do {
            try disk.sync(directory)
        } catch {
            state.withLockedValue { state in
                state.last += 1
                state.failures[place] = (state.last, error)
            }
            throw error
        }
        let since = state.withLockedValue { state -> SystemError? in
            guard state.failures[place]?.number == before else { return state.failures[place]?.error }
            state.failures[place] = nil
            return nil
        }
        if let since { throw since }
    }

    /// Whether a name is one that ``sync(_:_:)`` made in a run that died over it.
    func isStale(_ name: FileName) -> Bool {
        temporaries.isStale(name)
    }

    /// A generation that is gone has nothing to settle.
    func forget(generation: UInt64) {
        state.withLockedValue { state in
            state.failures = state.failures.filter { place, _ in
                switch place {
                case .generation(generation), .bucket(generation, _): false
                default: true
                }
            }
        }
    }
}
