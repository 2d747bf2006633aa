import Glibc

/// Locates the daemon's Unix socket for a program that was not told where it is.
public enum ThumbcacheSocket {
    /// The socket of the daemon that serves the whole machine.
    public static let ofMachine = "/run/thumbcached/thumbcached.sock"
    /// The socket of a user's own daemon, relative to XDG_RUNTIME_DIR.
    public static let inSession = "thumbcached/thumbcached.sock"

    /// Returns the value of THUMBCACHED_SOCKET; or else the socket of the user's own daemon, if it exists and the
    /// process does not run as root; or else the machine's socket.
    /// - Parameter variable: returns the value of an environment variable.
    public static func path(variable: (_ name: String) -> String?) -> String {
        path(isRoot: getuid() == 0, variable: variable, exists: { access($0, F_OK) == 0 })
    }

    @_spi(Wire) public static func path(
        isRoot: Bool, variable: (String) -> String?, exists: (String) -> Bool
    ) -> String {
        if let named = variable("THUMBCACHED_SOCKET"), !named.isEmpty { return named }
        let own = variable("XDG_RUNTIME_DIR").flatMap { $0.hasPrefix("/") ? "\($0)/\(inSession)" : nil }
        if let own, !isRoot, exists(own) { return own }
        if exists(ofMachine) { return ofMachine }
        return own ?? ofMachine
    }
}
