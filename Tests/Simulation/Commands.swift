import CacheCore
import CacheFakes
import LinuxSupport
import NIOCore

/// The commands of clients, executed as `Connection` does.
extension Simulation {
    /// Begins a command that the dice choose, or ends a waiter.
    func begin() {
        var dice = self.dice.roll(plan.commands.reduce(0, +))
        let choice = plan.commands.firstIndex { weight in
            dice -= weight
            return dice < 0
        }
        var owner = self.dice.roll(ownerCount)
        // Most clients ask for users who are logged in.
        if choice != 2, start.sessions.openCache(self.owner(owner)) == nil { owner = self.dice.roll(ownerCount) }
        switch choice {
        case 0: get(owner)
        case 1: put(owner)
        case 2: logIn(owner)
        case 3: logOut(owner)
        case 4: purge(owner)
        case 5: release(owner)
        case 6: endWaiter()
        case 7: status(owner)
        default: warm(owner)
        }
    }

    // MARK: Commands in progress

    private func began(_ command: Command) {
        checker.began(command)
        command.index = commands.count
        commands.append(command)
        note("\(command)")
    }

    /// Ends a command, unless a crash has; returns false then.
    private func ended(_ command: Command) -> Bool {
        if command.hasEnded { return false }
        if sabotage == .lostReply, command.kind == .logOut { return false }
        command.hasEnded = true
        let last = commands.removeLast()
        if last !== command {
            last.index = command.index
            commands[command.index] = last
        }
        report.commands += 1
        return true
    }

    private func failed(_ command: Command, _ failure: CacheFailure) {
        note("\(command): \(failure.name)")
        dice.note(2)
        checker.failed(command)
    }

    /// Performs a command in a task.
    func perform<Value: Sendable>(
        _ command: Command, _ body: @escaping @Sendable () async throws(CacheFailure) -> Value,
        then finish: @escaping @Sendable (Value) -> Void
    ) {
        began(command)
        Task(executorPreference: start.scheduler) { [unowned self] in
            do throws(CacheFailure) {
                let value = try await body()
                guard ended(command) else { return }
                dice.note(1)
                note("\(command): done")
                finish(value)
            } catch {
                if ended(command) { failed(command, error) }
            }
        }
    }

    // MARK: Sessions

    private func logIn(_ index: Int) {
        let owner = owner(index)
        let isHeld = dice.happens(256)
        let origin = Start.origins[index % Start.origins.count]
        var request = LoginRequest(
            session: OpaqueID("s\(dice.roll(2))"), heldBy: isHeld ? UInt64(dice.roll(2)) : nil, origin: origin)
        if dice.happens(256) { request.token = Secret("token\(dice.roll(2))".utf8) }
        if origin == "plain", dice.happens(256) { request.refresh = Secret("refresh\(dice.roll(4))".utf8) }
        let command = Command(.logIn, uid: owner.uid, [index], isDurable: !isHeld)
        let (start, isLost) = (start, sabotage == .lostLogin)
        perform(command) { [request] () async throws(CacheFailure) in
            // Acknowledged without an effect.
            if isLost { return }
            try await start.pendingLogouts.process(uid: owner.uid)
            try await start.sessions.logIn(owner, request)
        } then: { [unowned self] in
            checker.loggedIn(command)
        }
    }

    private func logOut(_ index: Int) {
        let owner = owner(index)
        let service = start.invalidations
        switch dice.roll(16) {
        case 0:
            logOutAccount(index / plan.usersPerAccount)
        case 1:
            // The same user in each account.
            let everywhere = (0..<plan.accounts).map { $0 * plan.usersPerAccount + index % plan.usersPerAccount }
            logOut(Command(.logOut, uid: owner.uid, everywhere), hasEpoch: false, isLast: true) {
                () async throws(CacheFailure) in
                try await service.logOutInEveryUID(owner.user, caller: 0)
            }
        case 2...5:
            let session = OpaqueID("s\(dice.roll(2))")
            logOut(Command(.logOut, uid: owner.uid, [index]), isLast: false) { () async throws(CacheFailure) in
                try await service.logOut(owner, session: session)
            }
        default:
            logOut(Command(.logOut, uid: owner.uid, [index]), isLast: true) { () async throws(CacheFailure) in
                try await service.logOut(owner)
            }
        }
    }

    func logOutAccount(_ account: Int) {
        let (uid, service) = (1_000 + UInt32(account), start.invalidations)
        logOut(Command(.logOut, uid: uid, users(of: account)), isLast: true) { () async throws(CacheFailure) in
            try await service.logOutAll(uid: uid)
        }
    }

    /// - Parameter isLast: whether all sessions end; otherwise the receipt tells.
    private func logOut(
        _ command: Command, hasEpoch: Bool = true, isLast: Bool,
        _ body: @escaping @Sendable () async throws(CacheFailure) -> Receipt
    ) {
        perform(command, body) { [unowned self] receipt in
            let epoch = sabotage == .repeatedEpochs ? receipt.epoch & 0xFFFF_FFFF : receipt.epoch
            checker.loggedOut(command, epoch: hasEpoch ? epoch : nil, isLast: isLast || receipt.sessions == 0)
        }
    }

    /// A connection closes, which may end the last session.
    private func release(_ index: Int) {
        let (owner, service) = (owner(index), start.invalidations)
        let (session, connection) = (OpaqueID("s\(dice.roll(2))"), UInt64(dice.roll(2)))
        let command = Command(.release, uid: owner.uid, [index])
        perform(command) { () async throws(CacheFailure) in
            try await service.release(owner, session: session, connection: connection)
        } then: { [unowned self] in
            checker.failed(command)
        }
    }

    private func purge(_ index: Int) {
        let (owner, service) = (owner(index), start.invalidations)
        let profiles = dice.happens(256) ? [] : (0..<dice.roll(1...2)).map { _ in dice.roll(plan.profiles) }
        let ids = profiles.map { profile($0) }
        let command = Command(.purge, uid: owner.uid, [index], profiles)
        perform(command) { () async throws(CacheFailure) in
            try await service.purge(owner, profiles: ids)
        } then: { [unowned self] receipt in
            checker.purged(command, epoch: receipt.epoch)
        }
    }

    private func status(_ index: Int) {
        let (owner, sessions) = (owner(index), start.sessions)
        let command = Command(.status, uid: owner.uid, [index])
        perform(command) { () async throws(CacheFailure) in
            try await sessions.status(owner) != nil
        } then: { [unowned self] in
            checker.status(command, isLoggedIn: $0)
        }
    }

    // MARK: Images

    private func put(_ index: Int) {
        let owner = owner(index)
        let profile = dice.roll(plan.profiles)
        let size = dice.one(of: plan.sizes)
        let timeToLive: Int64? = dice.happens(512) ? nil : Int64(dice.roll(1...100))
        let command = Command(
            .put, uid: owner.uid, [index], [profile], size: size, isPlain: size == 0, isDurable: timeToLive == nil)
        let image = checker.putBegan(index, profile)
        let bytes = SampleImage.png("\(image)", size: Self.size)
        let imageKey = ImageKey(profile: self.profile(profile), size: UInt16(size))
        let start = start
        perform(command) { () async throws(CacheFailure) in
            let cache = try await start.sessions.cache(owner)
            try await start.world.services.imagePool.run(for: owner.uid) {
                try cache.put(imageKey, bytes, timeToLive: timeToLive)
            }
        } then: { [unowned self] in
            checker.put(command, image)
        }
    }

    private func warm(_ index: Int) {
        let (owner, sessions) = (owner(index), start.sessions)
        let imageKeys = (0..<plan.profiles).map { ImageKey(profile: profile($0)) }
        let command = Command(.warm, uid: owner.uid, [index])
        perform(command) { () async throws(CacheFailure) in
            _ = try await sessions.cache(owner).warm(imageKeys)
        } then: { [unowned self] in
            checker.failed(command)
        }
    }

    private func get(_ index: Int) {
        let owner = owner(index)
        let profile = dice.roll(plan.profiles)
        var size = dice.one(of: plan.sizes)
        let isNamed = dice.happens(30)
        if isNamed { size = 0 }
        let command = Command(
            .get, uid: owner.uid, [index], [profile], size: size, isPlain: size == 0 && !isNamed)
        let imageKey = ImageKey(profile: self.profile(profile), size: UInt16(size))
        let download: ImageQuery.Download =
            switch dice.roll(16) {
            case 0: .never
            case 1: .inBackground
            default: .awaited
            }
        began(command)
        if let cache = start.sessions.openCache(owner) {
            return get(command, imageKey, isNamed: isNamed, download, from: cache)
        }
        Task(executorPreference: start.scheduler) { [unowned self, start] in
            do throws(CacheFailure) {
                let cache = try await start.sessions.cache(owner)
                if !command.hasEnded { get(command, imageKey, isNamed: isNamed, download, from: cache) }
            } catch {
                reply(command, .failure(error))
            }
        }
    }

    private func get(
        _ command: Command, _ imageKey: ImageKey, isNamed: Bool, _ download: ImageQuery.Download, from cache: UserCache
    ) {
        var target: DownloadTarget?
        if isNamed {
            let url = "https://other.test/u\(command.owner % plan.usersPerAccount)/p\(command.profile)/128"
            do throws(CacheFailure) {
                target = try cache.target(of: imageKey, url: url)
            } catch {
                return reply(command, .failure(error))
            }
        }
        if let served = cache.hit(imageKey, url: target?.url) { return reply(command, .success(served)) }
        let query = ImageQuery(imageKey: imageKey, named: target, download: download)
        start.loops.submit(for: command.uid) { [unowned self, start] in
            let lookup = cache.lookUpOnDisk(query)
            if let served = lookup.image { return reply(command, .success(served)) }
            let waiter = cache.get(query, after: lookup) { [unowned self] in reply(command, $0) }
            if command.hasEnded { return }
            let expire: @Sendable () -> Void = { [unowned self] in
                if command.hasEnded { return }
                checker.expired(command)
                cache.expire(waiter)
            }
            let leave = { [unowned self] in
                cache.leave(waiter)
                if ended(command) { checker.failed(command) }
            }
            waiters.append((command, dice.happens(512) ? leave : expire))
            // Every second client waits at most as long as the origin's timeout.
            if dice.happens(512) { _ = start.world.time.after(milliseconds: cache.defaultWait, expire) }
        }
    }

    /// A client closes its connection, or its WAIT is over.
    private func endWaiter() {
        while !waiters.isEmpty {
            let index = dice.roll(waiters.count)
            waiters.swapAt(index, waiters.count - 1)
            let waiter = waiters.removeLast()
            if !waiter.command.hasEnded { return waiter.end() }
        }
    }

    private func reply(_ command: Command, _ outcome: Result<ServedImage?, CacheFailure>) {
        guard ended(command) else { return }
        let reply = Self.reply(outcome)
        note("\(command): \(reply)")
        if case .image(let number, _) = reply {
            report.images += 1
            dice.note(UInt64(number))
        }
        checker.got(command, reply)
    }

    private static func reply(_ outcome: Result<ServedImage?, CacheFailure>) -> Checker.Reply {
        switch outcome {
        case .success(let served?):
            let bytes = served.image.bytes.image
            let parts = SampleImage.label(of: bytes).split(separator: "@")
            // Renditions have the fake renderer's length.
            guard let number = parts.first.flatMap({ Int($0) }),
                bytes.readableBytes == size || served.image.record.sourceDigest != nil
            else { return .damaged("\(parts) of \(bytes.readableBytes) bytes") }
            return .image(number, size: parts.count > 1 ? parts.last.flatMap { Int($0) } : nil)
        case .success(nil): return .missing
        case .failure(.notLoggedIn): return .notLoggedIn
        case .failure(.inputOutput(let reason)), .failure(.busy(let reason)): return .unavailable(reason)
        case .failure(.shuttingDown): return .unavailable("the daemon is stopping")
        case .failure(let failure): return .failed(failure.name)
        }
    }
}
