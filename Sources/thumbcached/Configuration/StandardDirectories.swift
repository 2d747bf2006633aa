/// Default directories, from the environment: those that systemd made for the service (systemd.exec(5)) precede those
/// of the calling user (XDG Base Directory Specification 0.8).
struct StandardDirectories: Equatable, Sendable {
    var cache: String?
    var state: String?
    var runtime: String?
    var socket: String?
    /// Nil for root and for a service (a variable of systemd is set): a file that the account or its environment
    /// controls must not choose admins and origins of the machine's daemon.
    var ownConfiguration: String?

    /// Variables that systemd sets for a service with directories.
    private static let ofServices = ["CACHE_DIRECTORY", "STATE_DIRECTORY", "RUNTIME_DIRECTORY"]

    init(environment: [String: String], uid: UInt32) {
        // The XDG specification ignores relative paths; an empty path counts as unset.
        func directory(_ name: String) -> String? {
            // systemd passes all directories of a kind in one variable; the first is used.
            environment[name]?.split(separator: ":", omittingEmptySubsequences: false).first
                .flatMap { $0.hasPrefix("/") ? String($0) : nil }
        }
        func own(_ variable: String, under fallback: String) -> String? {
            let base = directory(variable) ?? directory("HOME").map { "\($0)/\(fallback)" }
            return base.map { "\($0)/thumbcached" }
        }
        let isRoot = uid == 0
        let passed = directory("RUNTIME_DIRECTORY")
        // Only a runtime directory is certain to be emptied by a reboot. Root's keys are one level below the socket,
        // which every account can reach.
        let session = directory("XDG_RUNTIME_DIR").map { "\($0)/thumbcached" }

        cache = directory("CACHE_DIRECTORY") ?? own("XDG_CACHE_HOME", under: ".cache")
        state = directory("STATE_DIRECTORY") ?? own("XDG_STATE_HOME", under: ".local/state")
        runtime = passed ?? session ?? (isRoot ? "/run/thumbcached/keys" : nil)
        // Root's daemon serves the machine, so its socket is where clients try first.
        socket = (passed ?? (isRoot ? "/run/thumbcached" : session)).map { "\($0)/thumbcached.sock" }
        // Also if a variable is empty: a misconfigured service must not read a personal file.
        let isService = Self.ofServices.contains { environment[$0] != nil }
        ownConfiguration =
            isRoot || isService ? nil : own("XDG_CONFIG_HOME", under: ".config").map { "\($0)/thumbcached.toml" }
    }
}
