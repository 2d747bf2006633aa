import CLinux
import Glibc
import NIOCore
import ThumbcacheProtocol

/// The process at the other end of a connection, as reported by the kernel (unix(7), SO_PEERCRED).
public struct Peer: Sendable, Equatable {
    public let uid: UInt32
    /// 0 if unknown, as for a process of another PID namespace.
    public let pid: Int32
    /// Whether the peer may log out and purge users of other uids.
    public let isAdmin: Bool
    /// Whether the peer may read metrics of all uids. True for every admin.
    public let isObserver: Bool

    public init(uid: UInt32, pid: Int32, isAdmin: Bool, isObserver: Bool = false) {
        (self.uid, self.pid, self.isAdmin) = (uid, pid, isAdmin)
        self.isObserver = isObserver || isAdmin
    }
}

/// The uids and groups that have a right.
public struct AccessRule: Sendable, Equatable {
    public var uids: Set<UInt32>
    public var gids: Set<UInt32>

    public init(uids: Set<UInt32> = [], gids: Set<UInt32> = []) {
        self.uids = uids
        self.gids = gids
    }
}

extension Peer {
    /// - Throws: if the kernel does not report the credentials.
    public static func of(
        _ descriptor: CInt, admins: AccessRule, observers: AccessRule = AccessRule()
    ) throws(IOError) -> Peer {
        var (uid, gid, pid) = (UInt32(0), UInt32(0), Int32(0))
        guard clinux_peer_credentials(descriptor, &uid, &gid, &pid) == 0 else {
            throw IOError(errnoCode: errno, reason: "SO_PEERCRED")
        }
        func isNamed(by rule: AccessRule) throws(IOError) -> Bool {
            if rule.uids.contains(uid) || rule.gids.contains(gid) { return true }
            return rule.gids.isEmpty ? false : try isMember(of: rule.gids, descriptor)
        }
        let isAdmin = try isNamed(by: admins)
        return Peer(uid: uid, pid: pid, isAdmin: isAdmin, isObserver: isAdmin ? true : try isNamed(by: observers))
    }

    private static func isMember(of gids: Set<UInt32>, _ descriptor: CInt) throws(IOError) -> Bool {
        // A process with more groups gains no right by them.
        var groups = [UInt32](repeating: 0, count: 1024)
        let count = clinux_peer_groups(descriptor, &groups, CInt(groups.count))
        if count < 0 {
            // An unreadable list grants no right.
            if errno == ERANGE || errno == ENODATA { return false }
            throw IOError(errnoCode: errno, reason: "SO_PEERGROUPS")
        }
        // Group 0 grants a right as a primary group only.
        return groups.prefix(Int(count)).contains { $0 != 0 && gids.contains($0) }
    }

    /// Throws if the peer's uid is unmapped, since one uid would stand for many accounts (F29).
    /// - Parameter overflowUID: the uid of users without a number in this user namespace (user_namespaces(7)).
    public func rejectingUnmapped(overflowUID: UInt32) throws(CommandError) -> Peer {
        // All ones means "no uid": setresuid(2).
        guard uid != overflowUID, uid != .max else {
            let reason = "your uid has no number in the daemon's user namespace and is reported as \(uid)"
            throw CommandError(.denied, "\(reason); connect as a user whose uid is mapped")
        }
        return self
    }
}
