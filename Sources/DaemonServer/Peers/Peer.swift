import CLinux
import Glibc
import NIOCore
import ThumbcacheProtocol

/// Who is at the other end of a connection, as the kernel says (unix(7), SO_PEERCRED).
public struct Peer: Sendable, Equatable {
    public let uid: UInt32
    /// 0 where the kernel does not know, as for a process of another PID namespace.
    public let pid: Int32
    /// May log out and purge in another uid's name.
    public let isAdmin: Bool
    /// May read figures of all uids, which every admin may.
    public let isObserver: Bool

    /// - Parameter isObserver: without being an admin.
    public init(uid: UInt32, pid: Int32, isAdmin: Bool, isObserver: Bool = false) {
        (self.uid, self.pid, self.isAdmin) = (uid, pid, isAdmin)
        self.isObserver = isObserver || isAdmin
    }
}

/// Uids and groups that may do what others may not.
public struct AccessRule: Sendable, Equatable {
    public var uids: Set<UInt32>
    public var gids: Set<UInt32>

    public init(uids: Set<UInt32> = [], gids: Set<UInt32> = []) {
        self.uids = uids
        self.gids = gids
    }
}

extension Peer {
    /// Asks the kernel who is at the other end of a Unix socket.
    /// - Throws: ``IOError`` if it cannot say.
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
        // More than a process is likely to be in.
        var groups = [UInt32](repeating: 0, count: 1024)
        let count = clinux_peer_groups(descriptor, &groups, CInt(groups.count))
        if count < 0 {
            // Nobody gains a right by a list that cannot be read.
            if errno == ERANGE || errno == ENODATA { return false }
            throw IOError(errnoCode: errno, reason: "SO_PEERGROUPS")
        }
        // Group 0 counts through the primary group alone.
        return groups.prefix(Int(count)).contains { $0 != 0 && gids.contains($0) }
    }

    /// The peer, unless the kernel could not say who it is: no uid of ours stands for whoever it may be (F29).
    /// - Parameter overflowUID: its word for a uid without a number in this user namespace (user_namespaces(7)).
    public func refused(asUID overflowUID: UInt32) throws(CommandError) -> Peer {
        // All ones is no uid but the absence of one: setresuid(2).
        guard uid != overflowUID, uid != .max else {
            let reason = "the kernel cannot say who you are: your uid has no number in the daemon's user namespace"
            throw CommandError(.denied, "\(reason), and is shown as \(uid); call as a user who has one")
        }
        return self
    }
}
