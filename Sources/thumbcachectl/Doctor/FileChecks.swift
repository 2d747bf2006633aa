import CLinux
import DiskStore
import Glibc
import LinuxSupport

/// The required owner, mode and type of a file.
struct FileRule {
    /// nil permits any owner.
    var owner: uid_t?
    /// Bits that must not be set.
    var refused: mode_t
    /// Bits that must be set.
    var required: mode_t = 0
    var kind = S_IFDIR

    func violation(in status: stat) -> (what: String, remedy: String)? {
        let mode = status.st_mode & 0o7777
        guard status.st_mode & S_IFMT == kind else {
            let name = kind == S_IFDIR ? "directory" : kind == S_IFSOCK ? "socket" : "plain file"
            return ("is not a \(name)", "move it away")
        }
        if let owner, status.st_uid != owner {
            return ("belongs to uid \(status.st_uid), not to uid \(owner)", "chown \(owner)")
        }
        guard mode & refused == 0, mode & required == required else {
            let right = (mode & ~refused) | required
            return ("has mode \(octal(mode)); it should be \(octal(right))", "chmod \(octal(right))")
        }
        return nil
    }

    func check(_ path: String, missing: Diagnostic) -> Diagnostic {
        var status = stat()
        guard stat(path, &status) == 0 else {
            let code = errno
            return code == ENOENT ? missing : .unknown("\(path): \(SystemError("stat", code: code).reason)")
        }
        guard let (what, remedy) = violation(in: status) else {
            return .ok("\(path) has the expected type, owner and mode")
        }
        return .wrong("\(path) \(what)", remedy.hasPrefix("ch") ? "\(remedy) \(path)" : remedy)
    }

    private func octal(_ mode: mode_t) -> String { "0" + String(mode, radix: 8) }
}

/// Checks owners and modes of directories, and that the socket exists.
struct PermissionsCheck: DoctorCheck {
    let name = "permissions"

    func diagnose(_ daemon: InstalledDaemon) async -> [Diagnostic] {
        var diagnostics: [Diagnostic] = []
        if daemon.owner == nil {
            diagnostics.append(.note("the daemon's user is unknown: owners of directories are not checked"))
        }
        // Read access for others is harmless: names are hashed, and keys have a directory of their own.
        let own = FileRule(owner: daemon.owner, refused: 0o022, required: 0o700)
        for path in [daemon.cache, daemon.state].compactMap({ $0 }) {
            diagnostics.append(own.check(path, missing: .note("\(path) does not exist: the daemon has never run")))
        }
        if daemon.isSystemDaemon, let pending = daemon.pending {
            let remedy = "install -d -o root -g thumbcached -m 0770 \(pending)"
            let rule = FileRule(owner: 0, refused: 0o007, required: 0o770)
            diagnostics.append(
                rule.check(pending, missing: .wrong("\(pending) does not exist: a logout could be lost", remedy)))
        }
        let socket = FileRule(owner: nil, refused: 0, kind: S_IFSOCK)
        diagnostics.append(
            socket.check(daemon.socket, missing: .wrong("\(daemon.socket) does not exist", daemon.startAdvice)))
        return diagnostics
    }
}

struct CredentialsCheck: DoctorCheck {
    let name = "credentials"

    func diagnose(_ daemon: InstalledDaemon) async -> [Diagnostic] {
        guard let configuration = daemon.configuration else {
            return [.unknown("cannot read the configuration, which names the files")]
        }
        let files = [".client-secret-file", ".password-file"].flatMap { configuration.all($0) }
        let secrets = files.map { key, path in
            diagnostic(key, path, FileRule(owner: nil, refused: daemon.isSystemDaemon ? 0o027 : 0o077, kind: S_IFREG))
        }
        // Certificates are not secret, and the fetcher reads them as another user.
        let authorities = configuration.all(".ca-file").map { key, path in
            diagnostic(key, path, FileRule(owner: nil, refused: 0o022, required: 0o444, kind: S_IFREG))
        }
        return secrets + authorities == [] ? [.ok("the configuration names no such file")] : secrets + authorities
    }

    private func diagnostic(_ key: String, _ path: String, _ rule: FileRule) -> Diagnostic {
        rule.check(
            path, missing: .wrong("\(path) does not exist", "create it, or remove \(key) from the configuration"))
    }
}

/// Inspects the store as `verify` does.
struct StoreCheck: DoctorCheck {
    let name = "store"
    /// Results shown; `verify` lists all.
    private static let most = 5

    func diagnose(_ daemon: InstalledDaemon) async -> [Diagnostic] {
        guard let cache = daemon.cache, let state = daemon.state else {
            return [.unknown("the location of the store is unknown: HOME is not set", "set HOME")]
        }
        if access(state, F_OK) != 0, errno == ENOENT { return [.note("no store yet: the daemon has never run")] }
        let configuration = DiskStoreConfiguration(
            cacheDirectory: cache, stateDirectory: state,
            runtimeDirectory: daemon.hasRuntimeKeys ? daemon.keyParent : nil,
            keys: daemon.hasRuntimeKeys ? .runtime : .disk, pendingLogouts: daemon.pending ?? "\(state)-pending")
        do {
            let report = try StoreInspection(configuration).report()
            let wrong = report.findings.prefix(Self.most).map { finding in
                Diagnostic.wrong("\(finding.path) \(finding.what)", finding.problem.remedy)
            }
            let unread = report.unread.prefix(1).map { Diagnostic.unknown("\($0.path): \($0.reason)") }
            let more = report.findings.count - Self.most
            let rest = more > 0 ? [Diagnostic.wrong("\(more) more problems", "run thumbcachectl verify")] : []
            let whole = report.lines.prefix(2).joined(separator: " ")
            return wrong + rest + unread + (wrong.isEmpty && unread.isEmpty ? [.ok(whole)] : [])
        } catch {
            return [.unknown("cannot read the store: \(error)")]
        }
    }
}

/// Checks the key files, and whether their file system overwrites data in place.
struct KeysCheck: DoctorCheck {
    let name = "keys"

    func diagnose(_ daemon: InstalledDaemon) async -> [Diagnostic] {
        guard let parent = daemon.keyParent else {
            return [.unknown("the location of the keys is unknown: HOME is not set", "set HOME")]
        }
        let rule = FileRule(owner: daemon.owner, refused: 0o077, required: 0o700)
        let keys = "\(parent)/keys"
        var diagnostics = [rule.check(keys, missing: .note("\(keys) does not exist: no user has logged in yet"))]
        let names = FileRule(owner: daemon.owner, refused: 0o077, required: 0o600, kind: S_IFREG)
        diagnostics.append(
            names.check(
                "\(parent)/names.key",
                missing: .note("\(parent)/names.key does not exist: the daemon will create it")))
        if let fileSystem = Self.copyOnWriteFileSystem(parent) {
            diagnostics.append(
                .note(
                    "\(parent) is on \(fileSystem), where an overwritten key may leave a remnant",
                    "keys = \"runtime\" in the configuration keeps keys off the disk; see docs/operations.md"))
        }
        return diagnostics
    }

    /// The name of a file system that does not overwrite data in place; see statfs(2).
    private static func copyOnWriteFileSystem(_ path: String) -> String? {
        let names: [UInt32: String] = [
            0x9123_683e: "btrfs", 0x794c_7630: "overlayfs", 0x2fc1_2fc1: "zfs", 0xf2f5_2010: "f2fs",
        ]
        return names[clinux_file_system(path)]
    }
}
