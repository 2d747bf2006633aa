import CacheCore
import CacheFakes
import ImageOptions
import LinuxSupport
import NIOCore

/// Lives of many users in one daemon with faults and crashes, all decided by a seed: the domain over its fakes, on one
/// thread and without sleeps. The checker judges every reply.
final class Simulation: @unchecked Sendable {
    // Unchecked: see Scheduler.
    struct Report: Sendable, Equatable {
        var lives = 0
        var steps = 0
        /// Commands that were answered.
        var commands = 0
        var images = 0
        var downloads = 0
        var faults = 0
        var crashes = 0
        /// Of all decisions and replies.
        var hash: UInt64 = 0
        var violation: String?
    }

    let dice: Dice
    let plan: Plan
    let sabotage: Sabotage?
    var checker: Checker
    var report = Report()
    /// Commands in progress.
    var commands: [Command] = []
    /// GETs that may leave or time out, some of which have ended.
    var waiters: [(command: Command, end: () -> Void)] = []
    private(set) var start: Start
    private let pendingFiles = FakePendingLogoutFiles()
    private let owners: [Owner]
    private let profiles: [OpaqueID]
    private var trace: ((String) -> Void)?

    /// - Parameter trace: gets a line for each event.
    init(seed: UInt64, sabotage: Sabotage? = nil, trace: ((String) -> Void)? = nil) {
        dice = Dice(seed: seed)
        plan = Plan(dice)
        self.sabotage = sabotage
        self.trace = trace
        let perAccount = plan.usersPerAccount
        owners = (0..<plan.accounts * perAccount).map {
            // The same names in each account.
            Owner(uid: 1_000 + UInt32($0 / perAccount), user: OpaqueID("u\($0 % perAccount)"))
        }
        profiles = (0..<plan.profiles).map { OpaqueID("p\($0)") }
        checker = Checker(users: owners.count, profiles: profiles.count)
        let scheduler = Scheduler(dice: dice)
        let disk = DiskControl(dice, plan, scheduler, nil, onChange: { _ in }, onFailedRead: {}, note: { _ in })
        start = Start(
            FakeStore(log: EventLog(isRecording: false), controller: disk), disk, scheduler, pending: pendingFiles,
            memory: plan.memory, now: 1_800_000_000)
        restart(.kill)
        report.crashes = 0
    }

    func note(_ event: @autoclosure () -> String) {
        if let trace { trace("\(report.steps) \(event())") }
    }

    // MARK: Steps

    /// Runs until a violation, or for that many steps; then all commands must end.
    func run(steps: Int) -> Report {
        var next = 2_000
        while report.steps < steps, checker.violation == nil {
            step()
            if report.steps >= next {
                settle()
                next += dice.roll(1...8) * 1_000
            }
        }
        if checker.violation == nil { settle() }
        if checker.violation == nil { logOutAll() }
        start.endAllWork()
        report.hash = dice.hash
        report.faults += start.disk.faults
        report.violation = checker.violation
        return report
    }

    private func step() {
        report.steps += 1
        let dice = self.dice.roll(1_024)
        var share = plan.crash
        if dice < share { return crash() }
        share += plan.clock
        if dice < share {
            advanceClock()
            return
        }
        share += plan.client
        if dice < share, commands.count < plan.clients { return begin() }
        // The network is one of several sources of events.
        if self.dice.happens(plan.network), endRequest(hasFaults: true) { return }
        if !start.scheduler.isIdle { return start.scheduler.runOne() }
        if commands.count < plan.clients { return begin() }
        if !endRequest(hasFaults: true) { advanceClock() }
    }

    private func advanceClock() {
        let time = start.world.time
        switch dice.roll(64) {
        case 0: time.wallClock += Int64(dice.roll(1...2) * 2 - 3) * 31_536_000
        case 1: time.advance(seconds: 86_400)
        case 2...8: time.advance(seconds: Int64(dice.roll(1...1_000)))
        default: time.advance(milliseconds: Int64(dice.roll(1...2_000)))
        }
        start.world.store.isInPageCache = dice.happens(plan.pageCache)
        start.world.fetcher.isBusy = dice.happens(512)
    }

    /// Without faults, lets all work end. It is a violation if commands remain.
    private func settle() {
        start.disk.hasFaults = false
        start.world.fetcher.isBusy = false
        defer { start.disk.hasFaults = true }
        for _ in 0..<100 {
            var most = 200_000
            while !start.scheduler.isIdle || endRequest(hasFaults: false) {
                if !start.scheduler.isIdle { start.scheduler.runOne() }
                most -= 1
                if most == 0 { return checker.violated("work without end") }
            }
            if commands.isEmpty, start.sessions.figures(of: nil).pendingInvalidations == 0 { break }
            start.world.time.advance(seconds: 60)
        }
        if let command = commands.first { checker.violated("\(command): no reply; \(commands.count) commands wait") }
        let pending = start.sessions.figures(of: nil).pendingInvalidations
        if pending > 0 { checker.violated("\(pending) purges or logouts are not retried") }
        // With a sabotage, the checker has to find it.
        if sabotage == nil, let violation = start.world.store.violations.first {
            checker.violated("store: \(violation)")
        }
    }

    /// Logs out all users: nothing may remain.
    private func logOutAll() {
        for account in 0..<plan.accounts { logOutAccount(account) }
        settle()
        // What waits for them retains memory.
        waiters = []
        start.world.time.advance(seconds: 60)
        guard checker.violation == nil else { return }
        let (images, bytes) = (start.world.services.memory.statistics.images, start.world.services.budget.bytes)
        if images > 0 { checker.violated("\(images) images in memory after the logout of all users") }
        if bytes > 0 { checker.violated("\(bytes) bytes are charged after the logout of all users") }
    }

    // MARK: Crashes

    private enum Crash { case kill, powerCut }

    private func crash() {
        if dice.happens(plan.stop) { stop() }
        restart(dice.happens(plan.powerCut) ? .powerCut : .kill)
    }

    /// Stops the daemon as a service manager does: each command gets a reply (F47).
    private func stop() {
        note("stop")
        let start = start
        Task(executorPreference: start.scheduler) {
            await start.invalidations.shutDown()
            start.isStopped = true
        }
        while !start.scheduler.isIdle || !start.isStopped && endRequest(hasFaults: true) {
            if !start.scheduler.isIdle { start.scheduler.runOne() }
        }
        if !start.isStopped { checker.violated("the daemon does not stop") }
        if let command = commands.first { checker.violated("\(command): no reply at the stop") }
    }

    private func restart(_ crash: Crash) {
        note("crash: \(crash)")
        report.crashes += 1
        for command in commands {
            command.hasEnded = true
            checker.failed(command)
        }
        (commands, waiters) = ([], [])
        checker.crashed(losingPower: crash == .powerCut)
        let (last, now) = (start, start.world.time.now)
        report.faults += last.disk.faults
        let scheduler = Scheduler(dice: dice)
        let disk = DiskControl(
            dice, plan, scheduler, sabotage, onChange: { [unowned self] in changed($0) },
            onFailedRead: { [unowned self] in checker.entriesLost() }, note: { [unowned self] in note($0()) })
        let store =
            switch crash {
            case .kill: last.world.store.afterKill(controller: disk)
            case .powerCut: dice.withRandom { last.world.store.afterPowerCut(using: &$0, controller: disk) }
            }
        last.endAllWork()
        start = Start(
            store, disk, scheduler, pending: pendingFiles, memory: plan.memory, now: now + Int64(dice.roll(100)))
        start.world.fetcher.onStart = { [unowned self] in downloadBegan($0) }
        start.world.renderer?.onRequest = { [unowned self] in start.renders.append($0) }
        start.world.tokens.onStart = { [unowned self] in start.tokenRequests.append($0) }
        start.world.store.isInPageCache = dice.happens(plan.pageCache)
        processPendingLogouts()
    }

    /// Hooks may have left files while no daemon ran. The start processes them before it serves clients (F46).
    private func processPendingLogouts() {
        let accounts = (0..<plan.accounts).filter { _ in dice.happens(plan.pendingLogout) }
        for account in accounts { pendingFiles.add(1_000 + UInt32(account), "\(report.steps)") }
        guard !accounts.isEmpty else { return }
        let command = Command(.logOut, uid: 0, accounts.flatMap { users(of: $0) })
        perform(command) { [start] () async throws(CacheFailure) in
            do throws(CacheFailure) {
                try await start.pendingLogouts.processAll()
            } catch {
                // The daemon starts again, on a disk that works.
                start.disk.hasFaults = false
                try await start.pendingLogouts.processAll()
            }
        } then: { [unowned self] in
            checker.loggedOut(command, epoch: nil, isLast: true)
        }
        while !start.scheduler.isIdle { start.scheduler.runOne() }
        start.disk.hasFaults = true
        if !command.hasEnded { checker.violated("\(command): no reply at the start") }
    }

    private func changed(_ change: FakeStore.Change) {
        note("disk: \(change.summary)")
        switch change {
        case .login: break
        case .purge(let owner), .logout(let owner): checker.removed(index(of: owner))
        case .removal(let owner, let profile): checker.removed(index(of: owner), Self.number(profile))
        case .image(_, _, let bytes):
            if let number = Self.number(SampleImage.label(of: bytes)) { checker.stored(number) }
        }
    }

    // MARK: Downloads, tokens and renditions

    private func downloadBegan(_ download: FakeDownload) {
        guard !start.disk.hasCrashed else { return start.downloads.append(.init(download: download, image: 0)) }
        let isDouble = start.downloads.contains {
            !$0.isCancelled && $0.download.url == download.url
                && $0.download.request.account == download.request.account
        }
        if isDouble { checker.violated("two downloads of \(download.url) at a time (I6)") }
        // https://host/u1/p2/64
        let parts = download.url.utf8.split(separator: UInt8(ascii: "/"))
        let owner = Int(download.request.account - 1_000) * plan.usersPerAccount + Self.number(parts[2].dropFirst())
        let isUnsized = parts.count < 5 || parts[4].elementsEqual("128".utf8)
        let image = checker.downloadBegan(owner, Self.number(parts[3].dropFirst()), isUnsized: isUnsized)
        report.downloads += 1
        note("download \(image) of \(download.url)")
        start.downloads.append(.init(download: download, image: image))
    }

    /// Ends a download, a rendering or a request for a token, chosen at random. Returns false if there is none.
    private func endRequest(hasFaults: Bool) -> Bool {
        let (downloads, renders, tokens) = (start.downloads.count, start.renders.count, start.tokenRequests.count)
        guard downloads + renders + tokens > 0 else { return false }
        let index = dice.roll(downloads + renders + tokens)
        let fails = hasFaults && dice.happens(plan.failedDownload)
        if index < downloads {
            let running = start.downloads[index]
            start.downloads.swapAt(index, downloads - 1)
            start.downloads.removeLast()
            end(running, fails: fails)
        } else if index < downloads + renders {
            let render = start.renders.remove(at: index - downloads)
            if fails { render.fail(dice.happens(512) ? .unavailable : .unreadableImage) } else { render.render() }
        } else {
            start.tokenRequests.remove(at: index - downloads - renders).end(tokenResponse(fails: fails))
        }
        return true
    }

    private func end(_ running: Start.RunningDownload, fails: Bool) {
        let download = running.download
        if running.isCancelled, dice.happens(512) { return }
        download.end(fails ? failure() : response(running))
    }

    private func failure() -> DownloadOutcome {
        switch dice.roll(4) {
        case 0: .failed(.origin("status 500"))
        case 1: .failed(.timedOut("no response"))
        case 2: .failed(.unauthorized("status 401"))
        default: .unusable(.badImage("HTML"), ResponseHeaders())
        }
    }

    private func response(_ running: Start.RunningDownload) -> DownloadOutcome {
        var headers: [String: [String]] = [:]
        switch dice.roll(8) {
        case 0: headers["cache-control"] = ["max-age=0"]
        case 1: headers["cache-control"] = ["no-store"]
        case 2: headers["vary"] = ["authorization"]
        case 3...5: headers["cache-control"] = ["max-age=60"]
        default: break
        }
        if dice.happens(plan.missing) { return .missing(ResponseHeaders(headers)) }
        if let etag = running.download.request.condition?.etag, dice.happens(700) {
            // Some confirm an image that is not stored.
            headers["etag"] = [dice.happens(100) ? "\"another\"" : etag]
            return .notModified(ResponseHeaders(headers))
        }
        let image = sabotaged(running.image)
        headers["etag"] = ["\"\(image)\""]
        return SampleImage.downloaded(
            "\(image)", size: sabotage == .tornImage ? Self.size - 8 : Self.size, headers: headers)
    }

    private func sabotaged(_ image: Int) -> Int {
        guard sabotage != nil else { return image }
        let facts = checker.images[image]
        let found = checker.images[..<image].lastIndex { other in
            switch sabotage {
            case .mixedProfiles: other.owner == facts.owner && other.profile != facts.profile
            case .mixedUsers: other.owner != facts.owner && other.profile == facts.profile
            case .lateDownload:
                other.kind == .download && other.owner == facts.owner && other.profile == facts.profile
            default: false
            }
        }
        return found ?? image
    }

    private func tokenResponse(fails: Bool) -> Result<TokenGrant, FetchFailure> {
        if fails { return .failure(dice.happens(512) ? .origin("status 500") : .unauthorized("invalid_grant")) }
        return .success(
            TokenGrant(
                accessToken: Secret("access".utf8), lifetime: Int64(dice.roll(1...1_000)),
                refreshToken: dice.happens(512) ? Secret("refresh\(dice.roll(4))".utf8) : nil))
    }

    // MARK: Names

    /// Bytes of every image.
    static let size = 64

    func owner(_ index: Int) -> Owner { owners[index] }
    func profile(_ index: Int) -> OpaqueID { profiles[index] }
    var ownerCount: Int { owners.count }
    func users(of account: Int) -> [Int] {
        Array(account * plan.usersPerAccount..<(account + 1) * plan.usersPerAccount)
    }

    private func index(of owner: Owner) -> Int {
        Int(owner.uid - 1_000) * plan.usersPerAccount + Self.number(owner.user)
    }

    static func number(_ id: OpaqueID) -> Int {
        id.withBytes { $0.dropFirst().reduce(0) { $0 * 10 + Int($1) - 48 } }
    }

    private static func number(_ digits: some Sequence<UInt8>) -> Int {
        digits.reduce(0) { $0 * 10 + Int($1) - 48 }
    }

    /// The number of an image from its label, also of a rendition.
    static func number(_ label: String) -> Int? {
        Int(label.prefix { $0 != "@" })
    }
}
