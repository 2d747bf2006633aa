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
    private let unsettled = NIOLockedValueBox<Set<Place>>([])

    init(disk: Disk, temporaries: TemporaryNames) {
        self.disk = disk
        self.temporaries = temporaries
    }

    /// Whether the last fsync of a directory failed.
    func isUnsettled(_ place: Place) -> Bool {
        unsettled.withLockedValue { $0.contains(place) }
    }

    func sync(_ directory: Directory, _ place: Place) throws(SystemError) {
        if isUnsettled(place) {
            let name = temporaries.make()
            _ = try disk.open(name, in: directory, for: .creating)
            try disk.unlink(name, in: directory)
        }
        do {
            try disk.sync(directory)
        } catch {
            unsettled.withLockedValue { _ = $0.insert(place) }
            throw error
        }
        unsettled.withLockedValue { _ = $0.remove(place) }
    }

    /// Whether a name is one that ``sync(_:_:)`` made in a run that died over it.
    func isStale(_ name: FileName) -> Bool {
        temporaries.isStale(name)
    }

    /// A generation that is gone has nothing to settle.
    func forget(generation: UInt64) {
        unsettled.withLockedValue { unsettled in
            unsettled = unsettled.filter { place in
                switch place {
                case .generation(generation), .bucket(generation, _): false
                default: true
                }
            }
        }
    }
}
