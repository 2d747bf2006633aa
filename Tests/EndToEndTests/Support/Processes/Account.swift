import Glibc

/// Somebody else's account, as far as a daemon can tell.
///
/// When root runs the tests, what is started is that account. Anybody else is one account only, in a user namespace of
/// their own, too; what is started then stays theirs, and names the account to a daemon of
/// ``Machine/daemonForOthers(_:)``, which has a stand-in for the kernel's SO_PEERCRED and SO_PEERGROUPS
/// (`Tests/CForeignPeers`).
struct Account {
    let uid: uid_t
    /// The groups it is in, besides the one that has its own number.
    var groups: [gid_t] = []

    init(_ uid: uid_t, groups: [gid_t] = []) {
        self.uid = uid
        self.groups = groups
    }

    static let root = Account(0)

    fileprivate static let isStandIn = geteuid() != 0

    /// What stands before a command's words to have it run by this account.
    func running(_ command: [String]) -> [String] {
        let ids = groups.map { "\($0)" }.joined(separator: ",")
        if Self.isStandIn {
            return ["env", "THUMBCACHED_TEST_PEER=\(uid)" + (ids.isEmpty ? "" : ",\(ids)")] + command
        }
        let supplementary = ids.isEmpty ? "--clear-groups" : "--groups=\(ids)"
        return ["setpriv", "--reuid=\(uid)", "--regid=\(uid)", supplementary] + command
    }
}

extension Machine {
    /// A daemon that runs and answers, and whose peers may be any ``Account``. Of whoever runs the tests it knows
    /// nothing: its admins are root's account, unless `adjust` says otherwise.
    func daemonForOthers(_ adjust: (Daemon) -> Void = { _ in }) throws -> Daemon {
        try daemon { daemon in
            daemon.acceptAccounts()
            adjust(daemon)
        }
    }
}

extension Daemon {
    /// Has it take what an ``Account`` runs for that account; to be called before the start.
    func acceptAccounts() {
        if Account.isStandIn { environment["LD_PRELOAD"] = "\(Files.built)/libForeignPeers.so" }
    }
}
