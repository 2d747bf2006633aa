/// What a simulation does how often, drawn from its seed: each life has its own mixture, since a fault that always
/// occurs hides what happens without it. Shares are of 1024.
struct Plan {
    let accounts: Int
    let usersPerAccount: Int
    let profiles: Int
    let sizes: [Int]
    /// Commands in progress at most.
    let clients: Int
    /// Bytes of the memory tier.
    let memory: Int
    /// Weights of ``Simulation/begin()``.
    let commands: [Int]

    /// That a stop precedes a crash, that a crash loses power, and that a logout hook ran before the next start.
    let stop: Int
    let powerCut: Int
    let pendingLogout: Int

    // In each step:
    let crash: Int
    let clock: Int
    let network: Int
    let client: Int

    /// That work waits at a step of the disk.
    let wait: Int
    let failedCommit: Int
    let failedRead: Int
    let failedWrite: Int
    let failedLookup: Int
    let failedDownload: Int
    let missing: Int
    let pageCache: Int

    init(_ dice: Dice) {
        accounts = dice.roll(1...4)
        usersPerAccount = dice.one(of: [1, 2, 3, 8])
        profiles = dice.one(of: [1, 2, 3, 6])
        sizes = dice.happens(512) ? [0] : [0, 0, 32, 64]
        clients = 1 << dice.roll(0...6)
        memory = dice.happens(512) ? 1 << 20 : 8 << 10
        // GET, PUT, LOGIN, LOGOUT, PURGE, release, leave, STAT and WARM.
        let (gets, logins) = (dice.one(of: [600, 2_400]), dice.one(of: [100, 200]))
        let (logouts, purges) = (dice.one(of: [0, 20, 60]), dice.one(of: [0, 40, 120]))
        commands = [gets, 100, logins, logouts, purges, 15, 30, 10, 5]
        crash = dice.one(of: [0, 1, 2])
        stop = dice.one(of: [0, 256])
        powerCut = dice.one(of: [0, 512, 1_024])
        pendingLogout = dice.one(of: [0, 0, 100])
        clock = dice.one(of: [2, 10, 50])
        network = dice.one(of: [50, 200, 600])
        client = dice.one(of: [100, 300, 600])
        wait = dice.one(of: [0, 200, 800])
        failedCommit = dice.one(of: [0, 0, 30, 200])
        failedRead = dice.one(of: [0, 0, 50])
        failedWrite = dice.one(of: [0, 0, 100])
        failedLookup = dice.one(of: [0, 0, 50])
        failedDownload = dice.one(of: [0, 100, 400])
        missing = dice.one(of: [0, 100, 400])
        pageCache = dice.one(of: [0, 512, 1_024])
    }
}

/// A deliberate fault of the fakes, which the checker must find.
enum Sabotage: String, CaseIterable, Sendable {
    /// The disk acknowledges a logout and destroys nothing.
    case forgottenLogout
    /// The disk acknowledges a purge, and has the old generation after a restart.
    case oldGeneration
    /// The disk acknowledges the purge of a profile and removes nothing.
    case forgottenRemoval
    /// The disk acknowledges a write and stores nothing.
    case forgottenWrite
    /// The reply to a logout never arrives.
    case lostReply
    /// A download for one profile gets the image of another.
    case mixedProfiles
    /// A download for one user gets the image of another.
    case mixedUsers
    /// A download gets the response to an earlier one, such as that of the previous login.
    case lateDownload
    /// An image ends in the middle.
    case tornImage
    /// Epochs do not grow across restarts.
    case repeatedEpochs
    /// A login is acknowledged without any effect.
    case lostLogin
}
