import CacheCore
import LinuxSupport
import Logging
import NIOCore
import SocketLoops
import ThumbcacheProtocol

/// LOGIN, LOGOUT, PURGE and USERS. Each completes before the connection's next command starts.
extension Connection {
    /// Copies the command's arguments, so that the caller can wipe the request.
    func logIn(_ command: LoginCommand) {
        let request = LoginRequest(
            session: command.session.map { OpaqueID($0).detached() } ?? OpaqueID("default"),
            heldBy: command.hold ? registration.id : nil, origin: command.origin,
            token: command.token.map { Secret($0.readableBytesView) },
            refresh: command.refresh.map { Secret($0.readableBytesView) })
        let session = HeldSession(owner: owner(command.user).detached(), session: request.session)
        if request.heldBy != nil, heldSessions.count >= Self.maximumHeldSessions, !heldSessions.contains(session) {
            let reason =
                "this connection holds \(Self.maximumHeldSessions) sessions, the maximum; log one out or use another "
                + "connection"
            return replyNow(.error(CommandError(.busy, reason)))
        }
        let replySlot = startBarrier()
        let me = NIOLoopBound(self, eventLoop: eventLoop)
        // By the next round, this connection is closed if its peer has disconnected. Its login must then not take
        // effect: a pending logout of the user may have been processed already.
        eventLoop.execute {
            if me.value.isClosed { me.value.endBarrier() } else { me.value.logIn(request, session, replySlot) }
        }
    }

    private func logIn(_ request: LoginRequest, _ session: HeldSession, _ replySlot: ReplyQueue.ReplySlot) {
        let (sessions, pendingLogouts) = (context.sessions, context.pendingLogouts)
        run {
            // A pending logout of the uid goes first, since it would end this login.
            try await pendingLogouts?.process(uid: session.owner.uid)
            try await sessions.logIn(session.owner, request)
        } then: { connection, result in
            if case .failure(let error) = result {
                return connection.endBarrier(replySlot, with: .error(CommandError(error)))
            }
            if request.heldBy != nil {
                if connection.isClosed {
                    // The peer closed during its login; nothing else would end this session.
                    connection.release([session])
                } else {
                    connection.heldSessions.insert(session)
                }
            }
            connection.endBarrier(replySlot, with: .ok)
        }
    }

    private static var maximumHeldSessions: Int { 1024 }

    /// Ends held sessions one after another, in one task per connection.
    func release(_ sessions: Set<HeldSession>) {
        guard !sessions.isEmpty else { return }
        let (invalidationService, log, id) = (context.invalidationService, context.log, registration.id)
        startTask {
            for held in sessions {
                do throws(CacheFailure) {
                    try await invalidationService.release(held.owner, session: held.session, connection: id)
                } catch {
                    // The service has logged the error, closed the user, and retries.
                    log.debug("could not end a held session at once", metadata: ["uid": "\(held.owner.uid)"])
                }
            }
        }
    }

    func logOut(_ command: LogoutCommand) {
        let session = command.session.map { OpaqueID($0) }
        let caller = peer.uid
        end(command.target, of: command.uid) { invalidationService, user, uid in
            guard let uid else {
                return try await invalidationService.logOutInEveryUID(user, session: session, caller: caller)
            }
            guard let user else { return try await invalidationService.logOutAll(uid: uid, session: session) }
            return try await invalidationService.logOut(Owner(uid: uid, user: user), session: session)
        } then: { connection, user, uid in
            // Sessions that have ended need no release.
            connection.heldSessions = connection.heldSessions.filter { held in
                let (owner, isOther) = (held.owner, session.map { $0 != held.session } ?? false)
                return owner.uid != uid ?? owner.uid || owner.user != user ?? owner.user || isOther
            }
        }
    }

    func purge(_ command: PurgeCommand) {
        let caller = peer.uid
        end(command.target, of: command.uid) { invalidationService, user, uid in
            let profiles = command.profiles.map { OpaqueID($0) }
            guard let uid else {
                return try await invalidationService.purgeInEveryUID(user, profiles: profiles, caller: caller)
            }
            guard let user else { return try await invalidationService.purgeAll(uid: uid, profiles: profiles) }
            return try await invalidationService.purge(Owner(uid: uid, user: user), profiles: profiles)
        }
    }

    /// Ends caches of the caller's uid or, for admins, of the named uid.
    /// - Parameter body: gets the user and the uid; nil for all users or uids.
    private func end(
        _ target: UserTarget, of named: UIDTarget,
        _ body: @escaping @Sendable (InvalidationService, OpaqueID?, _ uid: UInt32?) async throws -> Receipt,
        then: @escaping @Sendable (Connection, OpaqueID?, _ uid: UInt32?) -> Void = { _, _, _ in }
    ) {
        let uid: UInt32? =
            switch named {
            case .caller: peer.uid
            case .uid(let uid): uid
            case .all: nil
            }
        guard uid == peer.uid || peer.isAdmin else {
            let reason =
                "UID \(uid.map { "\($0)" } ?? "*"): you are uid \(peer.uid), "
                + "and only admins may name another (access.admins)"
            return replyNow(.error(CommandError(.denied, reason)))
        }
        let user: OpaqueID? = if case .user(let user) = target { OpaqueID(user) } else { nil }
        let (invalidationService, loops, version) = (context.invalidationService, context.loops, version)
        runAtBarrier {
            let receipt = try await body(invalidationService, user, uid)
            // Waits one round of each loop, which delivers hits found before the purge (I3) and queued events.
            if loops.loops.count > 1 { try await loops.barrier() }
            return .reply { $0.writeReceipt(receipt, version) }
        } then: {
            then($0, user, uid)
        }
    }

    /// Runs asynchronous work, and passes its result to the event loop.
    func run<Value: Sendable>(
        _ work: @escaping @Sendable () async throws -> Value,
        then: @escaping @Sendable (Connection, Result<Value, any Error>) -> Void
    ) {
        let me = NIOLoopBound(self, eventLoop: eventLoop)
        let loop = eventLoop
        startTask {
            let result: Result<Value, any Error>
            do { result = .success(try await work()) } catch { result = .failure(error) }
            loop.execute { then(me.value, result) }
        }
    }

    func startTask(_ work: @escaping @Sendable () async -> Void) {
        tasks += 1
        let request = RequestID(client: registration.id, number: tasks, pid: peer.pid)
        Task(executorPreference: context.services.tasks) {
            await RequestID.$current.withValue(request, operation: work)
        }
    }

    func users() {
        let (sessions, uid) = (context.sessions, peer.uid)
        if let known = sessions.knownUserList(of: uid) { return replyNow(known.reply) }
        runAtBarrier { try await sessions.userList(of: uid).reply }
    }

    /// Runs a command, and blocks the connection's later ones until it is complete.
    /// - Parameter work: returns the reply.
    func runAtBarrier(
        _ work: @escaping @Sendable () async throws -> ByteBuffer,
        then: @escaping @Sendable (Connection) -> Void = { _ in }
    ) {
        let replySlot = startBarrier()
        run(work) { connection, result in
            switch result {
            case .success(let reply):
                then(connection)
                connection.endBarrier(replySlot, with: reply)
            case .failure(let error): connection.endBarrier(replySlot, with: .error(CommandError(error)))
            }
        }
    }
}

extension UserList {
    fileprivate var reply: ByteBuffer {
        reply { users in
            .reply { buffer in
                buffer.writeArrayHeader(count: users.count)
                for user in users { user.withBytes { buffer.writeBulkString($0) } }
            }
        }
    }
}
