import Glibc

/// Another uid that a test runs programs as.
///
/// If the tests run as root, the programs run with that uid. Otherwise they keep the uid of the tests and name the
/// other one in an environment variable. A daemon of ``Machine/daemonForOthers(_:)`` reads it through a replacement of
/// SO_PEERCRED and SO_PEERGROUPS (`Tests/CForeignPeers`).
struct Account {
    let uid: uid_t
    /// The supplementary groups.
    var groups: [gid_t] = []

    init(_ uid: uid_t, groups: [gid_t] = []) {
        self.uid = uid
        self.groups = groups
    }

    static let root = Account(0)

    fileprivate static let isSimulated = geteuid() != 0

    /// The command line that runs `command` as this account.
    func running(_ command: [String]) -> [String] {
        let ids = groups.map { "\($0)" }.joined(separator: ",")
        if Self.isSimulated {
            return ["env", "THUMBCACHED_TEST_PEER=\(uid)" + (ids.isEmpty ? "" : ",\(ids)")] + command
        }
        let supplementary = ids.isEmpty ? "--clear-groups" : "--groups=\(ids)"
        return ["setpriv", "--reuid=\(uid)", "--regid=\(uid)", supplementary] + command
    }
}

extension Machine {
    /// Starts a daemon whose peers may be any ``Account``. The user who runs the tests has no special rights there.
    func daemonForOthers(_ adjust: (Daemon) -> Void = { _ in }) throws -> Daemon {
        try daemon { daemon in
            daemon.acceptAccounts()
            adjust(daemon)
        }
    }
}

extension Daemon {
    /// Lets the daemon recognize an ``Account``. Must be called before the start.
    func acceptAccounts() {
        if Account.isSimulated { environment["LD_PRELOAD"] = "\(Files.built)/libForeignPeers.so" }
    }
}
