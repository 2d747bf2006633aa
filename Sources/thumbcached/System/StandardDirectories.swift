/// Where things go when the configuration does not say, by the environment.
///
/// First what systemd made for the service (systemd.exec(5), RuntimeDirectory= and its kin), then the calling user's
/// own directories (XDG Base Directory Specification 0.8).
struct StandardDirectories: Equatable, Sendable {
    var cache: String?
    var state: String?
    var runtime: String?
    /// The default of `socket.path`.
    var socket: String?

    init(environment: [String: String], uid: UInt32) {
        // A relative path in these variables is to be ignored, says the specification; an empty one counts as unset.
        func directory(_ name: String) -> String? {
            // systemd passes all directories of one kind in one variable: the first is ours.
            environment[name]?.split(separator: ":", omittingEmptySubsequences: false).first
                .flatMap { $0.hasPrefix("/") ? String($0) : nil }
        }
        func own(_ variable: String, under fallback: String) -> String? {
            let base = directory(variable) ?? directory("HOME").map { "\($0)/\(fallback)" }
            return base.map { "\($0)/thumbcached" }
        }
        let isRoot = uid == 0
        let passed = directory("RUNTIME_DIRECTORY")
        // Without a runtime directory of the session there is nothing that a reboot is sure to empty, except root's own.
        // There the keys are one level below the socket: everybody must be able to reach that, and nobody these.
        let session = directory("XDG_RUNTIME_DIR").map { "\($0)/thumbcached" }

        cache = directory("CACHE_DIRECTORY") ?? own("XDG_CACHE_HOME", under: ".cache")
        state = directory("STATE_DIRECTORY") ?? own("XDG_STATE_HOME", under: ".local/state")
        runtime = passed ?? session ?? (isRoot ? "/run/thumbcached/keys" : nil)
        // Root's daemon serves the whole machine: it is to be found where clients look first, whoever started it.
        socket = (passed ?? (isRoot ? "/run/thumbcached" : session)).map { "\($0)/thumbcached.sock" }
    }
}
