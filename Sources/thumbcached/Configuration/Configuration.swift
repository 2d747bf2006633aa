import DaemonServer
import DiskStore
import Logging
import ThumbcacheProtocol
import ThumbnailCache

/// All that can be configured, with the defaults. Names follow the keys of the file: `limits.users-per-uid` is
/// ``Limits/usersPerUID``. What each key means, and why it has its default, stands in `docs/configuration.md`.
///
/// A value: made by ``ConfigurationLoader`` at the start and again at a reload, and handed on.
struct Configuration: Equatable, Sendable {
    /// Event loops.
    var threads = 1
    var socket = Socket()
    var storage = Storage()
    var memory = Memory()
    var sessions = Sessions()
    /// By name. Empty unless configured; `default` is the one that a LOGIN without ORIGIN takes.
    var origins: [String: Origin] = [:]
    var limits = Limits()
    var access = Access()
    var log = Log()

    struct Socket: Equatable, Sendable {
        /// Absolute. Nil where neither the file nor the environment says, which only a socket passed by systemd allows.
        var path: String?
        /// Permission bits of the socket file. Everyone may connect: who is who, the kernel tells.
        var mode: UInt32 = 0o666
    }

    struct Storage: Equatable, Sendable {
        /// Absolute path of the directory for images.
        var cache = ""
        /// Absolute path of the directory for log-ins and, unless they live in ``runtime``, keys.
        var state = ""
        /// Absolute path of a directory that a reboot empties. Nil where nothing names one; ``keys`` may need it.
        var runtime: String?
        /// Where keys live, and so whether log-ins survive a reboot.
        var keys = DiskStoreConfiguration.KeyStorage.disk
        /// Bytes, for all users together.
        var quota = 1 << 30
        /// Bytes, for each user.
        var userQuota = 64 << 20
    }

    struct Memory: Equatable, Sendable {
        /// Bytes of images kept in memory; 0 turns the tier off.
        var tier = 64 << 20
    }

    struct Sessions: Equatable, Sendable {
        /// Whether a boot since the last start logs everyone out.
        var purgeOnBoot = false
        /// Absolute path of the directory in which log-out hooks leave markers; empty for none.
        var pendingLogouts = ""
    }

    struct Limits: Equatable, Sendable {
        /// Bytes of one image.
        var image = CommandLimits().image
        /// Pixels, of either side of an image.
        var dimension = 8192
        /// Bytes of a user, profile or session id.
        var id = CommandLimits().id
        /// Elements of one request.
        var arguments = 1024
        /// Bytes of unprocessed input of one connection.
        var input = 16 << 20
        /// Bytes of unread output of one connection.
        var output = 16 << 20
        /// Bytes of what is kept because of one account: requests, replies, users, sessions, missing images.
        var memoryPerUID = 64 << 20
        /// Of all accounts together.
        var memory = 256 << 20
        /// Milliseconds for which a peer may read nothing, or leave a frame unfinished.
        var stall: Int64 = 30_000
        /// Bytes of a token.
        var token = CommandLimits().token
        /// In total, the admins' among them.
        var connections = 1024
        var connectionsPerUID = 256
        /// How many of ``connections`` only admins can use.
        var adminConnections = 16
        var usersPerUID = 10_000
        var sessionsPerUser = 64
        /// At once, to all origins.
        var downloads = 256
        var downloadsPerUID = 64
        /// Downloads of one uid that wait until others have ended.
        var queuePerUID = 1024
        /// Profiles remembered as having no image.
        var negativeEntries = 100_000
    }

    struct Access: Equatable, Sendable {
        /// Who may log out and purge in another uid's name.
        var admins = AdminRule(uids: [0])
    }

    struct Log: Equatable, Sendable {
        var level = Logger.Level.info
    }
}
