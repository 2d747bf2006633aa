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

    public init(uid: UInt32, pid: Int32, isAdmin: Bool) {
        self.uid = uid
        self.pid = pid
        self.isAdmin = isAdmin
    }
}

/// The uids and groups that may act for others.
public struct AdminRule: Sendable {
    public let uids: Set<UInt32>
    public let gids: Set<UInt32>

    public init(uids: Set<UInt32>, gids: Set<UInt32>) {
        self.uids = uids
        self.gids = gids
    }
}

/// `struct ucred`, which Glibc's module does not show.
private struct Credentials {
    var pid: Int32 = 0
    var uid: UInt32 = 0
    var gid: UInt32 = 0
}

/// Room for as many groups as a process is likely to be in; with more the kernel answers ERANGE.
private struct GroupList {
    var groups = InlineArray<1024, UInt32>(repeating: 0)
}

extension Peer {
    /// SO_PEERGROUPS: Linux 4.13.
    private static var peerGroups: CInt { 59 }

    /// Asks the kernel. Call on the channel's event loop.
    static func of(_ channel: any Channel, admins: AdminRule) throws -> Peer {
        guard let provider = channel as? any SocketOptionProvider else { throw PeerError.unknown }
        let credentials: Credentials = try read(SO_PEERCRED, from: provider)
        var isAdmin = admins.uids.contains(credentials.uid) || admins.gids.contains(credentials.gid)
        if !isAdmin && !admins.gids.isEmpty {
            isAdmin = try isMember(of: admins.gids, provider)
        }
        return Peer(uid: credentials.uid, pid: credentials.pid, isAdmin: isAdmin)
    }

    private static func isMember(of gids: Set<UInt32>, _ provider: any SocketOptionProvider) throws -> Bool {
        let list: GroupList
        do {
            list = try read(peerGroups, from: provider)
        } catch let error as IOError where error.errnoCode == ERANGE || error.errnoCode == ENODATA {
            // Nobody is made an admin by a list that cannot be read.
            return false
        }
        // What the kernel did not fill in is 0, and group 0 counts through the primary group alone.
        return list.groups.indices.contains { list.groups[$0] != 0 && gids.contains(list.groups[$0]) }
    }

    private static func read<Value: Sendable>(_ option: CInt, from provider: any SocketOptionProvider) throws -> Value {
        let result: EventLoopFuture<Value> = provider.unsafeGetSocketOption(
            level: .socket, name: .init(rawValue: option))
        // On the loop the option is read at once: the future is fulfilled when it is returned.
        let box = OptionBox<Value>()
        result.assumeIsolated().whenComplete { box.result = $0 }
        guard let value = box.result else { throw PeerError.unknown }
        return try value.get()
    }
}

private final class OptionBox<Value> {
    var result: Result<Value, any Error>?
}

extension Peer {
    /// The peer, unless the kernel could not say who it is: no uid of ours stands for whoever it may be (F29).
    func refused(asUID overflowUID: UInt32) throws(CommandError) -> Peer {
        // All ones is no uid but the absence of one: setresuid(2).
        guard uid != overflowUID, uid != .max else {
            throw CommandError(
                .denied,
                "the kernel cannot say who you are: your uid has no number in the daemon's user namespace, and is shown as "
                    + "\(uid); call as a user who has one")
        }
        return self
    }
}

enum PeerError: Error {
    /// The kernel could not be asked who the peer is.
    case unknown
}
