import Synchronization

/// Names for files on their way: they say which run of the daemon made them, so that those of a run that died can be
/// told from those that are being written.
final class TemporaryNames: Sendable {
    private static let prefix = Array("tmp.".utf8)
    private let ours: [UInt8]
    private let next = Atomic<UInt64>(0)

    init(random: any RandomSource) throws {
        // The first half of a random name is enough to tell runs apart.
        ours = Self.prefix + (try random.generationID()).fileName.bytes.prefix(16)
    }

    func make() -> FileName {
        let number = next.wrappingAdd(1, ordering: .relaxed).newValue
        let bytes = ours + [UInt8(ascii: ".")] + String(number).utf8
        return bytes.withUnsafeBytes { FileName($0) }
    }

    func isTemporary(_ name: FileName) -> Bool {
        name.bytes.starts(with: Self.prefix)
    }

    /// Whether a run before this one left it.
    func isStale(_ name: FileName) -> Bool {
        isTemporary(name) && !name.bytes.starts(with: ours)
    }
}
