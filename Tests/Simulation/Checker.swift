/// Decides whether replies keep the promises of docs/guarantees.md. Knows only what a client knows: its requests and
/// their replies, and when downloads began.
///
/// Checks scope (I1), nothing without a login (I2), the fence (I3), also after crashes (I4), whole images (I5), single
/// flight (I6), that no acknowledged LOGIN or PUT is lost, and that epochs grow. A value of events in one sequence, so
/// each check is exact. Overlapping commands of a user have no known order; then it demands less.
struct Checker {
    /// An image that a client or an origin sent.
    struct Source {
        enum Kind { case put, download }

        let kind: Kind
        let owner: Int
        let profile: Int
        /// When the download began, or when the PUT took effect; nil before.
        var born: Int?
    }

    /// Whether a user is logged in, if the acknowledged commands determine it.
    enum Login { case unknown, loggedIn, loggedOut }

    private struct User {
        var login = Login.unknown
        /// No image from before these may be served: the newest acknowledged purges.
        var fence = 0
        var fences: [Int]
        /// When a purge took effect that may not be acknowledged yet.
        var effect = 0
        var effects: [Int]
        /// Commands in progress that log in, or that log out.
        var loggingIn = 0
        var loggingOut = 0
        var lastLogin = 0
        var lastLogout = 0
        /// Purges, logouts and PUTs in progress.
        var changing = 0
        var lastChange = 0
        /// The PUT that a GET of the profile must return, and when the last download without a size began.
        var put: [Int?]
        var lastDownload: [Int]
    }

    private var users: [User]
    private(set) var images: [Source] = []
    private var epochs: [UInt32: UInt64] = [:]
    private var now = 0
    /// The first violation.
    private(set) var violation: String?

    init(users: Int, profiles: Int) {
        self.users = Array(
            repeating: User(
                fences: Array(repeating: 0, count: profiles), effects: Array(repeating: 0, count: profiles),
                put: Array(repeating: nil, count: profiles), lastDownload: Array(repeating: 0, count: profiles)),
            count: users)
    }

    mutating func violated(_ reason: String) {
        if violation == nil { violation = reason }
    }

    private mutating func tick() -> Int {
        now += 1
        return now
    }

    // MARK: Sources of images

    /// Returns the image's number.
    mutating func putBegan(_ owner: Int, _ profile: Int) -> Int {
        images.append(Source(kind: .put, owner: owner, profile: profile, born: nil))
        return images.count - 1
    }

    mutating func downloadBegan(_ owner: Int, _ profile: Int, isUnsized: Bool) -> Int {
        let time = tick()
        if isUnsized { (users[owner].put[profile], users[owner].lastDownload[profile]) = (nil, time) }
        images.append(Source(kind: .download, owner: owner, profile: profile, born: time))
        return images.count - 1
    }

    // MARK: What happens on the disk

    mutating func stored(_ image: Int) {
        if images[image].kind == .put { images[image].born = images[image].born ?? tick() }
    }

    /// A purge took effect.
    mutating func removed(_ owner: Int, _ profile: Int? = nil) {
        let time = tick()
        guard let profile else {
            // Perhaps the purge of a single profile, which removes all if it fails to remove some.
            users[owner].effect = time
            return forgetPuts(of: owner)
        }
        users[owner].effects[profile] = time
    }

    private mutating func forgetPuts(of owner: Int) {
        for profile in users[owner].put.indices { users[owner].put[profile] = nil }
    }

    /// An entry may be lost.
    mutating func entriesLost() {
        for owner in users.indices { forgetPuts(of: owner) }
    }

    mutating func crashed(losingPower: Bool) {
        if losingPower { return entriesLost() }
        // Sessions that belong to connections end, and the cache with the last one.
        for owner in users.indices where users[owner].login != .loggedIn { forgetPuts(of: owner) }
    }

    // MARK: Commands

    mutating func began(_ command: Command) {
        let time = tick()
        command.began = time
        switch command.kind {
        case .logIn:
            for owner in command.owners {
                users[owner].loggingIn += 1
                users[owner].lastLogin = time
                if users[owner].login == .loggedOut { users[owner].login = .unknown }
            }
        case .logOut, .release:
            for owner in command.owners {
                users[owner].loggingOut += 1
                users[owner].lastLogout = time
                if users[owner].login == .loggedIn { users[owner].login = .unknown }
                changeBegan(owner, nil, time)
            }
        case .purge:
            for owner in command.owners { changeBegan(owner, command.profiles, time) }
        case .put:
            changeBegan(command.owner, command.profiles, time)
        case .get:
            let user = users[command.owner]
            command.login = user.login
            if command.isPlain { command.put = user.put[command.profile] }
        case .status:
            command.login = users[command.owner].login
        case .warm:
            break
        }
        command.epoch = epochs[command.uid] ?? 0
    }

    private mutating func changeBegan(_ owner: Int, _ profiles: [Int]?, _ time: Int) {
        users[owner].changing += 1
        users[owner].lastChange = time
        if let profiles, !profiles.isEmpty {
            for profile in profiles { users[owner].put[profile] = nil }
        } else {
            forgetPuts(of: owner)
        }
    }

    /// Ends a command. Called once for each, also when a crash interrupts it.
    private mutating func ended(_ command: Command) {
        let time = tick()
        switch command.kind {
        case .logIn:
            for owner in command.owners {
                users[owner].loggingIn -= 1
                users[owner].lastLogin = time
            }
        case .logOut, .release:
            for owner in command.owners {
                users[owner].loggingOut -= 1
                users[owner].lastLogout = time
                users[owner].changing -= 1
                users[owner].lastChange = time
            }
        case .purge, .put:
            for owner in command.owners {
                users[owner].changing -= 1
                users[owner].lastChange = time
            }
        case .get, .status, .warm:
            break
        }
    }

    /// The command failed, or a crash interrupted it: it took effect or not.
    mutating func failed(_ command: Command) {
        // The purge of a single profile that fails becomes a purge of all images, which may have reached the disk.
        if command.kind == .purge { for owner in command.owners { forgetPuts(of: owner) } }
        ended(command)
    }

    mutating func loggedIn(_ command: Command) {
        let isAlone = isAlone(command) { ($0.loggingOut, $0.lastLogout) }
        ended(command)
        if isAlone, command.isDurable { users[command.owner].login = .loggedIn }
    }

    /// - Parameter epoch: nil if the receipt is about several uids.
    mutating func purged(_ command: Command, epoch: UInt64?) {
        acknowledged(command, epoch)
        for owner in command.owners { raiseFence(owner, command) }
        ended(command)
    }

    /// - Parameter isLast: whether no session remains.
    mutating func loggedOut(_ command: Command, epoch: UInt64?, isLast: Bool) {
        acknowledged(command, epoch)
        if isLast {
            for owner in command.owners {
                raiseFence(owner, command)
                let isAlone = users[owner].loggingIn == 0 && users[owner].lastLogin < command.began
                if isAlone { users[owner].login = .loggedOut }
            }
        }
        ended(command)
    }

    private mutating func raiseFence(_ owner: Int, _ command: Command) {
        if command.profiles.isEmpty {
            users[owner].fence = max(users[owner].fence, users[owner].effect, command.began)
        }
        for profile in command.profiles {
            let fence = max(users[owner].effect, users[owner].effects[profile], command.began)
            users[owner].fences[profile] = max(users[owner].fences[profile], fence)
        }
    }

    private mutating func acknowledged(_ command: Command, _ epoch: UInt64?) {
        guard let epoch else { return }
        if epoch <= command.epoch {
            violated("\(command): epoch \(epoch) does not exceed \(command.epoch), which was acknowledged before")
        }
        epochs[command.uid] = max(epochs[command.uid] ?? 0, epoch)
    }

    /// Whether no command of the kind that `other` counts has overlapped this one.
    private func isAlone(_ command: Command, _ other: (User) -> (inProgress: Int, last: Int)) -> Bool {
        let other = other(users[command.owner])
        return other.inProgress == 0 && other.last < command.began
    }

    mutating func put(_ command: Command, _ image: Int) {
        // The command itself is in progress.
        let user = users[command.owner]
        let isAlone =
            user.changing == 1 && user.lastChange <= command.began && user.lastDownload[command.profile] < command.began
        // Otherwise a later PUT may have replaced it before it was stored.
        if isAlone, images[image].born == nil { violated("\(command) was acknowledged but not stored") }
        ended(command)
        if isAlone, command.isPlain, command.isDurable { users[command.owner].put[command.profile] = image }
    }

    mutating func status(_ command: Command, isLoggedIn: Bool) {
        if !isLoggedIn, wasAlways(.loggedIn, command) { violated("\(command): the login is lost") }
        if isLoggedIn, wasAlways(.loggedOut, command) { violated("\(command) after a logout (I2)") }
        ended(command)
    }

    /// Whether the user was in that state during the whole command.
    private func wasAlways(_ login: Login, _ command: Command) -> Bool {
        let user = users[command.owner]
        let lastChange = login == .loggedIn ? user.lastLogout : user.lastLogin
        return command.login == login && user.login == login && lastChange < command.began
    }

    // MARK: GET

    /// The client no longer waits: TIMEOUT is a correct reply.
    func expired(_ command: Command) { command.put = nil }

    enum Reply {
        /// The number of the image, and the size of a rendition.
        case image(Int, size: Int?)
        case damaged(String)
        case missing
        case notLoggedIn
        /// IOERR, BUSY or SHUTTINGDOWN: the command was not attempted, or the user is closed.
        case unavailable(String)
        case failed(String)
    }

    mutating func got(_ command: Command, _ reply: Reply) {
        defer { ended(command) }
        let user = users[command.owner]
        let wasLoggedOut = wasAlways(.loggedOut, command)
        let put = command.put.flatMap { user.put[command.profile] == $0 ? $0 : nil }
        switch reply {
        case .image(let number, let size):
            guard images.indices.contains(number) else { return violated("\(command): unknown image \(number)") }
            let image = images[number]
            if image.owner != command.owner {
                violated("\(command): image \(number) of another user, \(image.owner) (I1)")
            } else if image.profile != command.profile {
                violated("\(command): image \(number) of another profile, \(image.profile) (I1)")
            }
            if let size, size != command.size { violated("\(command): a rendition in size \(size)") }
            if user.login == .loggedOut { violated("\(command): image \(number) after a logout (I2)") }
            guard let born = image.born else { return violated("\(command): image \(number) before its PUT") }
            let fence = max(user.fence, user.fences[command.profile])
            if born < fence { violated("\(command): image \(number) of \(born) after the receipt of \(fence) (I3)") }
            if let put, put != number { violated("\(command): image \(number) instead of \(put), which was PUT (I7)") }
        case .damaged(let label):
            violated("\(command): damaged image \(label) (I5)")
        case .notLoggedIn:
            if wasAlways(.loggedIn, command) { violated("\(command): the login is lost (I4)") }
        case .missing:
            if wasLoggedOut { violated("\(command): a reply other than NOLOGIN after a logout (I2)") }
            if let put { violated("\(command): image \(put), which was PUT, is lost") }
        case .unavailable:
            break
        case .failed(let reason):
            if wasLoggedOut { violated("\(command): \(reason) instead of NOLOGIN after a logout (I2)") }
            // A purge of another profile may be removing all images (I4).
            if let put, user.changing == 0 { violated("\(command): \(reason) instead of image \(put), which was PUT") }
        }
    }
}

/// A command of a client, from its request to its reply.
final class Command: CustomStringConvertible, @unchecked Sendable {
    // Unchecked: see Scheduler.
    enum Kind { case logIn, logOut, release, purge, put, get, status, warm }

    let kind: Kind
    let uid: UInt32
    /// The users that it concerns.
    let owners: [Int]
    /// Empty for all profiles.
    let profiles: [Int]
    let size: Int
    /// A PUT or GET without size and URL.
    let isPlain: Bool
    /// A session that outlives its connection, or a PUT without TTL.
    let isDurable: Bool
    /// Its index in the list of commands in progress.
    var index = 0
    var hasEnded = false

    // What was known when it began.
    fileprivate(set) var began = 0
    fileprivate var epoch: UInt64 = 0
    fileprivate var login = Checker.Login.unknown
    fileprivate var put: Int?

    init(
        _ kind: Kind, uid: UInt32, _ owners: [Int], _ profiles: [Int] = [], size: Int = 0, isPlain: Bool = false,
        isDurable: Bool = false
    ) {
        (self.kind, self.uid, self.owners, self.profiles, self.size) = (kind, uid, owners, profiles, size)
        (self.isPlain, self.isDurable) = (isPlain, isDurable)
    }

    var owner: Int { owners[0] }
    var profile: Int { profiles[0] }

    var description: String { "\(kind) of users \(owners), profiles \(profiles), size \(size), begun at \(began)" }
}
