import Glibc
import LinuxSupport
import ProgramSupport

/// `--check-config`: judges a configuration as the service would read it, whoever asks; but a person's own file as that
/// person's daemon would.
///
/// Root may read what the service may not, and has other directories than it. So root becomes the service's user first,
/// where there is one, and what systemd passes to the service is taken as passed.
struct ConfigurationCheck {
    /// As whom the unit runs the daemon; its group is called the same.
    static let serviceUser = "thumbcached"
    /// What the unit's CacheDirectory= and its kin come to.
    static let serviceEnvironment = [
        "CACHE_DIRECTORY": "/var/cache/thumbcached", "STATE_DIRECTORY": "/var/lib/thumbcached",
        "RUNTIME_DIRECTORY": "/run/thumbcached",
    ]

    /// Nil for the one that is read where none is named.
    let file: String?
    let environment: [String: String]

    /// - Returns: a line that says which file is good, and one for each warning.
    /// - Throws: ``ConfigurationError`` with all that is wrong; ``SystemError`` if it cannot become the service's user.
    func run() throws -> String { try report(isService: try becomeServiceUser()) }

    func report(isService: Bool, uid: UInt32 = geteuid()) throws(ConfigurationError) -> String {
        var loader = ConfigurationLoader(environment: environment, uid: uid)
        let own = isService || file != nil ? nil : loader.ownFile
        // One that is there and cannot be read is judged so.
        if own.map({ access($0, F_OK) != 0 && errno == ENOENT }) ?? true {
            let passed = environment.merging(Self.serviceEnvironment) { own, _ in own }
            loader = ConfigurationLoader(environment: passed, uid: uid)
        }
        let configuration = try loader.load(file: file)
        let looked = (own.map { [$0] } ?? []) + [ConfigurationLoader.defaultFile]
        let suffix = isService ? ", read as the user \(Self.serviceUser)" : ""
        let verdict =
            configuration.file.map { "\($0) is good\(suffix)" }
            ?? "there is no \(looked.joined(separator: " and no "))\(suffix); the defaults are good"
        let warnings = configuration.warnings.map { "warning: \($0.key ?? "configuration"): \($0.sentence)" }
        return ([verdict] + warnings).joined(separator: "\n")
    }

    /// For good: the process does nothing else.
    /// - Returns: false for anybody but root, and where there is no such user.
    private func becomeServiceUser() throws(SystemError) -> Bool {
        let (name, accounts) = (Self.serviceUser, AccountDirectory.system)
        guard geteuid() == 0, let uid = try accounts.uid(name), let gid = try accounts.gid(name) else { return false }
        guard initgroups(name, gid) == 0, setgid(gid) == 0, setuid(uid) == 0 else {
            throw SystemError("become the user \(name), as whom the service reads its configuration")
        }
        return true
    }
}
