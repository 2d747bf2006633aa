import Glibc
import LinuxSupport
import ProgramSupport

/// The option `--check-config`: validates a configuration as the daemon that uses it would.
///
/// The machine's file is read as the service reads it: with the directories that systemd passes and, if root runs the
/// check, as the service's user. A personal file is read as that user's own daemon reads it.
struct ConfigurationCheck {
    static let serviceUser = "thumbcached"
    /// Directories that systemd passes to the unit.
    static let serviceEnvironment = [
        "CACHE_DIRECTORY": "/var/cache/thumbcached", "STATE_DIRECTORY": "/var/lib/thumbcached",
        "RUNTIME_DIRECTORY": "/run/thumbcached",
    ]

    /// Nil for the default file.
    let file: String?
    let environment: [String: String]

    /// Returns a line that names the valid file, and a line for each warning.
    /// - Throws: also if root cannot become the service's user.
    func run() throws -> String { try report(isService: try becomeServiceUser()) }

    func report(isService: Bool, uid: UInt32 = geteuid()) throws(ConfigurationError) -> String {
        var loader = ConfigurationLoader(environment: environment, uid: uid)
        let own = isService || file != nil ? nil : loader.ownFile
        // A file that exists but is unreadable is an error, not a reason to check another one.
        if own.map({ access($0, F_OK) != 0 && errno == ENOENT }) ?? true {
            let passed = environment.merging(Self.serviceEnvironment) { own, _ in own }
            loader = ConfigurationLoader(environment: passed, uid: uid)
        }
        let configuration = try loader.load(file: file)
        let candidates = (own.map { [$0] } ?? []) + [ConfigurationLoader.defaultFile]
        let suffix = isService ? ", read as the user \(Self.serviceUser)" : ""
        let verdict =
            configuration.file.map { "\($0): valid\(suffix)" }
            ?? "no configuration file (\(candidates.joined(separator: ", ")))\(suffix); the defaults are valid"
        let warnings = configuration.warnings.map { "warning: \($0.key ?? "configuration"): \($0.sentence)" }
        return ([verdict] + warnings).joined(separator: "\n")
    }

    /// Becomes the service's user for the rest of the process. Returns false if the caller is not root or there is no
    /// such user.
    private func becomeServiceUser() throws(SystemError) -> Bool {
        let (name, accounts) = (Self.serviceUser, AccountDirectory.system)
        guard geteuid() == 0, let uid = try accounts.uid(name), let gid = try accounts.gid(name) else { return false }
        guard initgroups(name, gid) == 0, setgid(gid) == 0, setuid(uid) == 0 else {
            throw SystemError("become the service's user \(name)")
        }
        return true
    }
}
