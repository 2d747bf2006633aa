import CLinux
import DiskStore
import Glibc
import LinuxSupport

/// Owner and mode of a file, as it should be.
struct Rule {
    /// nil for anybody.
    var owner: uid_t?
    /// Bits that must not be set.
    var refused: mode_t
    /// Bits that must be set.
    var required: mode_t = 0
    var kind = S_IFDIR

    /// nil where it is as it should be.
    func fault(of status: stat) -> (what: String, remedy: String)? {
        let mode = status.st_mode & 0o7777
        guard status.st_mode & S_IFMT == kind else {
            let name = kind == S_IFDIR ? "directory" : kind == S_IFSOCK ? "socket" : "plain file"
            return ("is no \(name)", "move it away")
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

    /// - Parameter missing: what it means that there is nothing.
    func look(at path: String, missing: Diagnostic) -> Diagnostic {
        var status = stat()
        guard stat(path, &status) == 0 else {
            let code = errno
            return code == ENOENT ? missing : .unknown("\(path): \(SystemError("look", code: code).reason)")
        }
        guard let (what, remedy) = fault(of: status) else { return .ok("\(path) is as it should be") }
        return .wrong("\(path) \(what)", remedy.hasPrefix("ch") ? "\(remedy) \(path)" : remedy)
    }

    private func octal(_ mode: mode_t) -> String { "0" + String(mode, radix: 8) }
}

/// Directories and the socket: whose they are, and who may enter.
struct PermissionsCheck: DoctorCheck {
    let name = "permissions"

    func look(at daemon: InstalledDaemon) async -> [Diagnostic] {
        var findings: [Diagnostic] = []
        if daemon.owner == nil {
            findings.append(.note("nobody knows as whom the daemon runs: whose its directories are is not looked at"))
        }
        // What lies in them has names that tell nothing; keys have a directory of their own.
        let own = Rule(owner: daemon.owner, refused: 0o022, required: 0o700)
        for path in [daemon.cache, daemon.state].compactMap({ $0 }) {
            findings.append(own.look(at: path, missing: .note("\(path) is not there: the daemon has never run")))
        }
        if daemon.isMachines, let pending = daemon.pending {
            let remedy = "install -d -o root -g thumbcached -m 0770 \(pending)"
            let rule = Rule(owner: 0, refused: 0o007, required: 0o770)
            findings.append(
                rule.look(at: pending, missing: .wrong("\(pending) is not there: a log-out could be lost", remedy)))
        }
        let socket = Rule(owner: nil, refused: 0, kind: S_IFSOCK)
        findings.append(
            socket.look(at: daemon.socket, missing: .wrong("\(daemon.socket) is not there", daemon.startAdvice)))
        return findings
    }
}

/// Files with secrets, and files of certificates, that the configuration names.
struct CredentialsCheck: DoctorCheck {
    let name = "credentials"

    func look(at daemon: InstalledDaemon) async -> [Diagnostic] {
        guard let configuration = daemon.configuration else {
            return [.unknown("the configuration, which names them, could not be read")]
        }
        let secrets = configuration.all(".client-secret-file").map { key, path in
            finding(key, path, Rule(owner: nil, refused: daemon.isMachines ? 0o027 : 0o077, kind: S_IFREG))
        }
        // It is no secret, and another user than the daemon reads it.
        let authorities = configuration.all(".ca-file").map { key, path in
            finding(key, path, Rule(owner: nil, refused: 0o022, required: 0o444, kind: S_IFREG))
        }
        return secrets + authorities == [] ? [.ok("the configuration names none")] : secrets + authorities
    }

    private func finding(_ key: String, _ path: String, _ rule: Rule) -> Diagnostic {
        rule.look(at: path, missing: .wrong("\(path) is not there", "make it, or take \(key) out of the configuration"))
    }
}

/// The files of the store, as `verify` sees them.
struct StoreCheck: DoctorCheck {
    let name = "store"
    /// What `verify` has more of.
    private static let most = 5

    func look(at daemon: InstalledDaemon) async -> [Diagnostic] {
        guard let cache = daemon.cache, let state = daemon.state else {
            return [.unknown("nobody knows where it is: HOME is not set", "set it")]
        }
        if access(state, F_OK) != 0, errno == ENOENT { return [.note("there is none yet: the daemon has never run")] }
        let configuration = DiskStoreConfiguration(
            cacheDirectory: cache, stateDirectory: state,
            runtimeDirectory: daemon.hasRuntimeKeys ? daemon.keyParent : nil,
            keys: daemon.hasRuntimeKeys ? .runtime : .disk, pendingLogouts: daemon.pending ?? "\(state)-pending")
        do {
            let report = try StoreInspection(configuration).report()
            let findings = report.findings.prefix(Self.most).map { finding in
                Diagnostic.wrong("\(finding.path) \(finding.what)", finding.problem.remedy)
            }
            let unread = report.unread.prefix(1).map { Diagnostic.unknown("\($0.path): \($0.reason)") }
            let more = report.findings.count - Self.most
            let rest = more > 0 ? [Diagnostic.wrong("\(more) things more are wrong", "see thumbcachectl verify")] : []
            let whole = report.lines.prefix(2).joined(separator: " ")
            return findings + rest + unread + (findings.isEmpty && unread.isEmpty ? [.ok(whole)] : [])
        } catch {
            return [.unknown("it could not be read: \(error)")]
        }
    }
}

/// Where keys lie, and whether what is overwritten there is gone.
struct KeysCheck: DoctorCheck {
    let name = "keys"

    func look(at daemon: InstalledDaemon) async -> [Diagnostic] {
        guard let parent = daemon.keyParent else { return [.unknown("nobody knows where they are", "set HOME")] }
        let rule = Rule(owner: daemon.owner, refused: 0o077, required: 0o700)
        let keys = "\(parent)/keys"
        var findings = [rule.look(at: keys, missing: .note("\(keys) is not there: nobody has ever logged in"))]
        let names = Rule(owner: daemon.owner, refused: 0o077, required: 0o600, kind: S_IFREG)
        findings.append(
            names.look(
                at: "\(parent)/names.key", missing: .note("\(parent)/names.key is not there: the daemon makes it")))
        if let fileSystem = Self.notInPlace(parent) {
            findings.append(
                .note(
                    "\(parent) is on \(fileSystem), where a key that is overwritten may leave a remnant",
                    "keys = \"runtime\" in the configuration keeps keys off the disk; see docs/operations.md"))
        }
        return findings
    }

    /// A file system that does not write in place: statfs(2).
    private static func notInPlace(_ path: String) -> String? {
        let names: [UInt32: String] = [
            0x9123_683e: "btrfs", 0x794c_7630: "overlayfs", 0x2fc1_2fc1: "zfs", 0xf2f5_2010: "f2fs",
        ]
        return names[clinux_file_system(path)]
    }
}
