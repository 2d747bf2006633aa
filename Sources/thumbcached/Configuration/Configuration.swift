import CacheCore
import DaemonServer
import DiskStore
import Logging
import ProgramSupport
import ThumbcacheProtocol

/// All that can be configured, with the defaults. Names follow the keys of the file: `limits.users-per-uid` is
/// ``Limits/usersPerUID``. What each key means, and why it has its default, stands in `docs/configuration.md`. Sizes
/// are in bytes and times in milliseconds, unless it is said otherwise; paths are absolute.
struct Configuration: Equatable, Sendable {
    /// Where it was read; nil where no file was.
    var file: String?
    /// Event loops.
    var threads = 1
    var socket = Socket()
    var storage = Storage()
    var memory = Memory()
    var renderer = Renderer()
    var sessions = Sessions()
    /// By name. Empty unless configured; `default` is the one that a LOGIN without ORIGIN takes.
    var origins: [String: Origin] = [:]
    /// Paths of the pictures that they serve where nobody has one, by the origins' names.
    var fallbackFiles: [String: String] = [:]
    var limits = Limits()
    var access = Access()
    var log = Log()
    /// Warnings about values, found when they were read.
    var cautions: [ConfigurationError.Problem] = []

    struct Socket: Equatable, Sendable {
        /// Nil where neither the file nor the environment says, which only a socket passed by systemd allows.
        var path: String?
        /// Permission bits of the socket file. Everyone may connect: who is who, the kernel tells.
        var mode: UInt32 = 0o666
    }

    struct Storage: Equatable, Sendable {
        var cache = ""
        /// For log-ins and, unless they live in ``runtime``, keys.
        var state = ""
        /// A directory that a reboot empties. Nil where nothing names one; ``keys`` may need it.
        var runtime: String?
        var keys = DiskStoreConfiguration.KeyStorage.disk
        /// For all users together.
        var quota = 1 << 30
        var userQuota = 64 << 20
    }

    struct Memory: Equatable, Sendable {
        /// 0 turns it off.
        var tier = 64 << 20
    }

    struct Renderer: Equatable, Sendable {
        /// Where a unit names a socket of the renderer's, that counts.
        enum Place: Equatable, Sendable {
            /// Looked for where the daemon lies.
            case beside
            case program(String)
            case nowhere
        }

        var path = Place.beside
    }

    struct Sessions: Equatable, Sendable {
        var purgeOnBoot = false
        /// The directory in which log-out hooks leave markers; empty for none.
        var pendingLogouts = ""
    }

    struct Limits: Equatable, Sendable {
        var image = CommandLimits().image
        /// Pixels, of either side of an image.
        var dimension = 8192
        /// Width times height of a picture that is made in another size.
        var pixels = 50_000_000
        /// Pictures made in other sizes that are kept of a profile.
        var renditionsPerProfile = 8
        /// Bytes of a user, profile or session id.
        var id = CommandLimits().id
        /// Elements of one request.
        var arguments = 1024
        /// Bytes of one connection that are received and not processed yet.
        var input = 16 << 20
        /// Bytes of one connection's replies that its peer has not read yet.
        var output = 16 << 20
        /// Bytes of what is kept because of one account: requests, replies, users, sessions, missing images.
        var memoryPerUID = 64 << 20
        /// The same of all accounts together.
        var memory = 256 << 20
        /// Milliseconds for which a peer may read nothing, or leave a frame unfinished.
        var stall: Int64 = 30_000
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
        var subscriptions = 1024
        /// Profiles remembered as having no image.
        var negativeEntries = 100_000
    }

    struct Access: Equatable, Sendable {
        /// Who may log out and purge in another uid's name.
        var admins = AccessRule(uids: [0])
        /// Who may read figures of all uids, and nothing else that an admin may.
        var observers = Observers()

        struct Observers: Equatable, Sendable {
            var rule = AccessRule()
            /// Those who are named and whom this machine does not know, each with the reason.
            var unknown: [String] = []
        }
    }

    struct Log: Equatable, Sendable {
        var level = Logger.Level.info
    }
}
