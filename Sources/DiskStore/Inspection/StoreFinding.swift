import CacheCore

/// Something in a store that is not as the store makes it. Holds no id of a user and nothing that was sealed.
public struct StoreFinding: Hashable, Sendable {
    public let path: String
    public let problem: StoreProblem
    /// More than ``StoreProblem/what`` knows.
    public let detail: String?
    /// The files that it was judged by. The same place with other files is another finding: while a daemon works
    /// there, what looks wrong at two moments may be two things that are each on their way.
    let judgedBy: [FileState]

    /// What is wrong, behind the path.
    public var what: String { detail ?? problem.what }

    /// Which file it was, and in which state.
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

/// What may be wrong with something in a store. Raw values are for programs, and keep their meaning.
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
    case untrustedMarkers = "untrusted-markers"

    /// The end of a sentence that begins with a path.
    public var what: String {
        switch self {
        case .torn: "is a torn image: its length is not what it says"
        case .altered: "is an image that was altered, or put here from another place: its user's key does not open it"
        case .misplaced: "is an image in the wrong directory: its name belongs in another"
        case .linked: "is an image with a second name somewhere (a hard link)"
        case .foreign: "was not made by the store"
        case .temporary: "is a temporary file that nobody finishes: whoever wrote it was killed"
        case .imagesWithoutKey: "holds images that no key opens: their user has logged out or was purged"
        case .sessionWithoutKey: "is a session file without a key: its user is not logged in"
        case .keyWithoutSession: "is a key file without a session file: half a log-in"
        case .damagedKey: "is a damaged key file, or one from another place"
        case .damagedSession: "is a damaged session file, or one that was not sealed under its user's key"
        case .damagedCounter: "is damaged: the number of starts cannot be read from both of its copies"
        case .wrongOwner: "belongs to another user than the store"
        case .wrongMode: "has another mode than the store gives"
        case .badMedium: "cannot be read back: the disk or the file system is damaged there"
        case .otherFileSystem: "is another file system, mounted in the store"
        case .untrustedMarkers: "cannot be trusted with log-outs"
        }
    }

    /// What to do about it: a sentence.
    public var remedy: String {
        switch self {
        case .torn, .linked: "Nothing: the daemon serves it to nobody, and removes it when it is requested."
        case .altered:
            "Remove the file, or wait until the daemon does when it is requested; it is served to nobody. "
                + "Check the disk, and who can write here."
        case .misplaced: "Nothing: it is served to nobody, and the daemon removes it after its next start."
        case .foreign: "Find out who put it here, and remove it; below users the daemon does so after its next start."
        case .temporary, .imagesWithoutKey, .sessionWithoutKey:
            "Start the daemon anew: it removes what was left over. If it stays, look at the log."
        case .keyWithoutSession, .damagedKey, .damagedSession:
            "Start the daemon anew: it logs this user out. If it stays, look at the log."
        case .damagedCounter: "Nothing: the next start mends it. If it comes back, look at the disk."
        case .wrongOwner: "Find out who changed it, and give it back with chown."
        case .wrongMode: "Find out who changed it: files have mode 600, directories 700."
        case .badMedium: "Look at the kernel's log and at the disk."
        case .otherFileSystem: "Unmount it: a store lies on one file system for images and on one for log-ins."
        case .untrustedMarkers: "Make it root's own directory, with the daemon's group and mode 770."
        }
    }
}

/// A part of a store that could not be looked at, so that nothing is known of it.
public struct UnreadPart: Hashable, Sendable {
    public let path: String
    public let reason: String
}

/// What the inspection of a store found.
public struct StoreReport: Sendable {
    /// Log-ins that are whole.
    public var users = 0
    /// Images that were opened, and what they take on disk as the quotas count it.
    public var held = Usage()
    /// Files that wait to be deleted. Nobody can open them.
    public var trash = Usage()
    /// Log-outs that wait for the daemon, by uid.
    public var pendingLogouts: [UInt32: Int] = [:]
    /// By path.
    public var findings: [StoreFinding] = []
    /// Without these nothing can be said of the whole store.
    public var unread: [UnreadPart] = []
}

/// What a store has of one user.
public struct UserTraces: Sendable {
    public enum Kind: String, Sendable {
        case key, session, images, temporary
    }

    public struct Trace: Hashable, Sendable {
        public let uid: UInt32
        public let kind: Kind
        public let path: String
    }

    /// By path.
    public var traces: [Trace] = []
    /// Files in the directories of images that were found, and what they take on disk.
    public var held = Usage()
    /// What waits to be deleted, whosever it was.
    public var trash = Usage()
    /// Log-outs that wait for the daemon, by uid: of all uids that were looked for.
    public var pendingLogouts: [UInt32: Int] = [:]
    public var unread: [UnreadPart] = []

    public var isNothing: Bool { traces.isEmpty && pendingLogouts.isEmpty && unread.isEmpty }
}
