import LinuxSupport
import Logging
import ThumbnailCache

/// The file VERSION in the cache directory: a store of a newer format is refused, since what it means is not known; the
/// images of an unknown older one are thrown away.
enum FormatVersion {
    private static let current = 1
    private static let fileName: FileName = "VERSION"
    private static let prefix = "thumbcached "

    enum Found: Equatable {
        case current, none, newer(Int), unknown
    }

    static func found(in text: Secret?) -> Found {
        guard let text else { return .none }
        let line = text.withBytes { String(decoding: $0, as: UTF8.self) }
        guard line.hasPrefix(prefix), line.hasSuffix("\n"), let number = Int(line.dropFirst(prefix.count).dropLast())
        else { return .unknown }
        return number == current ? .current : number > current ? .newer(number) : .unknown
    }

    /// Refuses what a newer daemon made.
    static func check(in cache: Directory, path: String, disk: Disk) throws -> Found {
        let version = found(in: try disk.contents(of: fileName, in: cache, limit: 4096))
        if case .newer(let number) = version {
            throw StoreStartError(
                "the cache directory \(path) has format \(number), made by a newer thumbcached; this one knows format "
                    + "\(current). Run the newer one, or configure another directory")
        }
        return version
    }

    /// Gives what lies under an unknown version to the trash, and writes the own.
    static func settle(
        _ version: Found, in cache: Directory, _ directories: StoreDirectories, disk: Disk, random: any RandomSource,
        log: Logger
    ) throws {
        if version == .current { return }
        if version == .unknown {
            log.warning("the cache directory has an unknown format; its images are thrown away")
            for entry in try disk.names(in: directories.users) {
                let newName = try random.generationID().fileName
                try disk.rename(entry.name, in: directories.users, to: newName, in: directories.trash)
            }
        }
        try disk.replace(fileName, in: cache, with: "\(prefix)\(current)\n".utf8)
    }
}
