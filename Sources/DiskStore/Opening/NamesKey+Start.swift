import Glibc
import LinuxSupport
import Logging
import ThumbnailCache

extension NamesKey {
    /// The key of this store; made if it is missing, after everything has been destroyed that only the old one could
    /// name (F51). A file that is there but wrong stops the start: it may be a mistake that somebody can mend.
    static func settle(
        in home: Directory, path: String, keys: Directory, disk: Disk, algorithms: Algorithms,
        random: any RandomSource, log: Logger
    ) throws -> NamesKey {
        if let status = try disk.status(of: fileName, in: home) {
            let complaint: String
            if status.kind != .file {
                complaint = "is no plain file"
            } else if status.owner != geteuid() {
                complaint = "belongs to uid \(status.owner) instead of \(geteuid())"
            } else if status.permissions & 0o077 != 0 {
                complaint = "has mode \(String(status.permissions, radix: 8)) instead of 600"
            } else {
                switch try read(try disk.contents(of: fileName, in: home, limit: 4096) ?? Secret([]), algorithms) {
                case .key(let key): return key
                case .wrong(let reason): complaint = reason
                }
            }
            throw StoreStartError(
                "\(path)/names.key \(complaint). Put the right file back; or remove it, which logs everybody out and "
                    + "throws away all images")
        }
        let count = try LoginFiles.destroyAll(in: keys, disk)
        if count > 0 {
            log.warning("names.key is missing: everybody is logged out", metadata: ["logins": "\(count)"])
        }
        let (key, file) = try make(random: random, algorithms: algorithms)
        try file.withBytes { bytes in
            try disk.replace(fileName, in: home, with: bytes) { () throws(SystemError) in try disk.sync(home) }
        }
        return key
    }

    /// Destroys the keys where this configuration does not look for them: an earlier one did, and a later one might (F51).
    static func destroyUnused(in home: Directory, disk: Disk, log: Logger) throws {
        do {
            let keys = try disk.openDirectory("keys", in: home)
            let count = try LoginFiles.destroyAll(in: keys, disk)
            if count > 0 {
                log.warning(
                    "keys moved by the configuration: everybody is logged out", metadata: ["logins": "\(count)"])
            }
        } catch let error as SystemError where error.isMissing {
            // There never were any.
        }
        // Only what is one: another program's file of that name is none of ours.
        let file = try disk.contents(of: fileName, in: home, limit: 4096)
        guard let file, file.withBytes({ $0.starts(with: magic) }) else { return }
        try disk.overwrite(fileName, in: home)
        try disk.unlinkIfPresent(fileName, in: home)
        try disk.sync(home)
    }
}
