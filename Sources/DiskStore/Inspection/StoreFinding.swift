import CacheCore

/// A problem in a store. Contains neither user names nor decrypted data.
public struct StoreFinding: Hashable, Sendable {
    public let path: String
    public let problem: StoreProblem
    /// A more specific description than ``StoreProblem/what``.
    public let detail: String?
    /// The state of the files from which the problem was inferred. If it changes, the finding is a different one:
    /// beside a running daemon, two scans may see two files that are being written.
    let judgedBy: [FileState]

    public var what: String { detail ?? problem.what }

    /// The identity and state of a file.
    struct FileState: Hashable {
        let inode: UInt64
        let size: Int64
        let seconds: Int64
        let nanoseconds: Int64

        init(_ status: FileStatus) {
            (inode, size) = (status.inode, status.size)
            (seconds, nanoseconds) = (status.modifiedSeconds, status.modifiedNanoseconds)
        }
    }
}

/// Kinds of problems. Raw values are a stable interface for programs.
public enum StoreProblem: String, Sendable, CaseIterable {
    case torn, altered, misplaced, linked, foreign, temporary
    case imagesWithoutKey = "images-without-key"
    case sessionWithoutKey = "session-without-key"
    case keyWithoutSession = "key-without-session"
    case damagedKey = "damaged-key"
    case damagedSession = "damaged-session"
    case damagedCounter = "damaged-counter"
    case wrongOwner = "wrong-owner"
    case wrongMode = "wrong-mode"
    case badMedium = "bad-medium"
    case otherFileSystem = "other-file-system"
    case untrustedPendingLogouts = "untrusted-pending-logouts"

    public var what: String {
        switch self {
        case .torn: "is a torn image: its length differs from that in its header"
        case .altered: "is an image that was altered or moved here: its user's key does not decrypt it"
        case .misplaced: "is an image in the wrong directory"
        case .linked: "is an image with a second hard link"
        case .foreign: "was not created by the store"
        case .temporary: "is an abandoned temporary file: its writer was killed"
        case .imagesWithoutKey: "contains images that no key decrypts: their user was logged out or purged"
        case .sessionWithoutKey: "is a session file without a key: its user is not logged in"
        case .keyWithoutSession: "is a key file without a session file: an incomplete login"
        case .damagedKey: "is a damaged key file, or one copied from elsewhere"
        case .damagedSession: "is a damaged session file, or one not encrypted under its user's key"
        case .damagedCounter: "is damaged: one of its copies of the number of starts is invalid"
        case .wrongOwner: "belongs to another user than the store"
        case .wrongMode: "has another mode than the store sets"
        case .badMedium: "cannot be read: the disk or the file system is damaged"
        case .otherFileSystem: "is another file system mounted in the store"
        case .untrustedPendingLogouts: "is not trusted with pending logouts"
        }
    }

    public var remedy: String {
        switch self {
        case .torn, .linked: "Nothing: it is never served, and the daemon removes it when it is requested."
        case .altered:
            "Remove the file, or wait until the daemon removes it when it is requested; it is never served. "
                + "Check the disk, and who can write here."
        case .misplaced: "Nothing: it is never served, and the daemon removes it after its next start."
        case .foreign: "Find out who created it, and remove it; below users, the daemon does so after its next start."
        case .temporary, .imagesWithoutKey, .sessionWithoutKey:
            "Restart the daemon: it removes the file. If it stays, see the log."
        case .keyWithoutSession, .damagedKey, .damagedSession:
            "Restart the daemon: it logs this user out. If it stays, see the log."
        case .damagedCounter: "Nothing: the next start repairs it. If it recurs, check the disk."
        case .wrongOwner: "Find out who changed it, and restore it with chown."
        case .wrongMode: "Find out who changed it: files have mode 600, directories 700."
        case .badMedium: "Check the kernel's log and the disk."
        case .otherFileSystem: "Unmount it: all images must be on one file system, and so must all logins."
        case .untrustedPendingLogouts: "Make it belong to root and the daemon's group, with mode 770."
        }
    }
}

public struct UnreadPart: Hashable, Sendable {
    public let path: String
    public let reason: String
}

/// The result of an inspection.
public struct StoreReport: Sendable {
    /// Number of complete logins.
    public var users = 0
    /// Images that were decrypted, and their space on disk as the quotas count it.
    public var held = Usage()
    /// Files in the trash. No key opens them.
    public var trash = Usage()
    /// Number of pending logouts by uid.
    public var pendingLogouts: [UInt32: Int] = [:]
    /// Sorted by path.
    public var findings: [StoreFinding] = []
    /// Parts that were not inspected; the other results do not cover them.
    public var unread: [UnreadPart] = []
}

/// What a store contains about one user.
public struct UserTraces: Sendable {
    public enum Kind: String, Sendable {
        case key, session, images, temporary
    }

    public struct Trace: Hashable, Sendable {
        public let uid: UInt32
        public let kind: Kind
        public let path: String
    }

    /// Sorted by path.
    public var traces: [Trace] = []
    /// Files in the image directories found, and their space on disk.
    public var held = Usage()
    /// The whole trash, of all users.
    public var trash = Usage()
    /// Number of pending logouts, by each uid searched for.
    public var pendingLogouts: [UInt32: Int] = [:]
    public var unread: [UnreadPart] = []

    public var isNothing: Bool { traces.isEmpty && pendingLogouts.isEmpty && unread.isEmpty }
}
