import CacheCore
import LinuxSupport
import Logging
import NIOCore
import SocketLoops
import ThumbcacheProtocol

/// Log-in, and what runs to its end before the next command starts: log-out, purge and what is asked of the sessions.
extension Connection {
    // MARK: Log-in

    /// Copies all that it takes of the command, so that what that came in can be wiped.
    func logIn(_ command: LoginCommand) {
        let request = LoginRequest(
            session: command.session.map { OpaqueID($0).detached() } ?? OpaqueID("default"),
            heldBy: command.hold ? registration.id : nil, origin: command.origin,
            token: command.token.map { Secret($0.readableBytesView) },
            refresh: command.refresh.map { Secret($0.readableBytesView) })
        let session = HeldSession(owner: owner(command.user).detached(), session: request.session)
        if request.heldBy != nil, heldSessions.count >= Self.mostHeldSessions, !heldSessions.contains(session) {
            let reason =
                "this connection holds \(Self.mostHeldSessions) sessions: log one out, or use another connection"
            return respond(.error(CommandError(.busy, reason)))
        }
        let replySlot = startBarrier()
        let me = NIOLoopBound(self, eventLoop: eventLoop)
        // In the loop's next turn, when it is known whether the peer was gone before its command was read: one that
        // died while the daemon was away may have been logged out since, before anybody was served.
        eventLoop.execute {
            if me.value.isClosed { me.value.endBarrier() } else { me.value.logIn(request, session, replySlot) }
        }
    }

    private func logIn(_ request: LoginRequest, _ session: HeldSession, _ replySlot: ReplyQueue.ReplySlot) {
        let (sessions, pendingLogouts) = (context.sessions, context.pendingLogouts)
        run {
            // A log-out that the uid is owed comes first, lest it end this log-in.
            try await pendingLogouts?.process(uid: session.owner.uid)
            try await sessions.logIn(session.owner, request)
        } then: { connection, result in
            if case .failure(let error) = result {
                return connection.endBarrier(replySlot, with: .error(CommandError(error)))
            }
            if request.heldBy != nil {
                if connection.isClosed {
                    // The peer went while it was being logged in: nothing else will ever end this session.
                    connection.release([session])
                } else {
                    connection.heldSessions.insert(session)
                }
            }
            connection.endBarrier(replySlot, with: .ok)
        }
    }

    /// Sessions that one connection may hold.
    private static var mostHeldSessions: Int { 1024 }

    /// Ends sessions that this connection held, one after another: a connection is one task, however many it holds.
    func release(_ sessions: Set<HeldSession>) {
        guard !sessions.isEmpty else { return }
        let (invalidations, log, id) = (context.invalidationService, context.log, registration.id)
        startTask {
            for held in sessions {
                do throws(CacheFailure) {
                    try await invalidations.release(held.owner, session: held.session, connection: id)
                } catch {
                    // What could not be made durable is closed and tried again by the service; it has logged why.
                    log.debug("a held session did not end at once", metadata: ["uid": "\(held.owner.uid)"])
                }
            }
        }
    }

    // MARK: Log-out and purge

    func logOut(_ command: LogoutCommand) {
        let session = command.session.map { OpaqueID($0) }
        let caller = peer.uid
        end(command.target, of: command.uid) { invalidations, user, uid in
            guard let uid else {
                return try await invalidations.logOutInEveryUID(user, session: session, caller: caller)
            }
            guard let user else { return try await invalidations.logOutAll(uid: uid, session: session) }
            return try await invalidations.logOut(Owner(uid: uid, user: user), session: session)
        } then: { connection, user, uid in
            // What has ended need not be ended again.
            connection.heldSessions = connection.heldSessions.filter { held in
                let (owner, isOther) = (held.owner, session.map { $0 != held.session } ?? false)
                return owner.uid != uid ?? owner.uid || owner.user != user ?? owner.user || isOther
            }
        }
    }

    func purge(_ command: PurgeCommand) {
        let caller = peer.uid
        end(command.target, of: command.uid) { invalidations, user, uid in
            let profiles = command.profiles.map { OpaqueID($0) }
            guard let uid else {
                return try await invalidations.purgeInEveryUID(user, profiles: profiles, caller: caller)
            }
            guard let user else { return try await invalidations.purgeAll(uid: uid, profiles: profiles) }
            return try await invalidations.purge(Owner(uid: uid, user: user), profiles: profiles)
        }
    }

    /// Ends caches of the caller's uid or, for admins, of whichever is named.
    /// - Parameters:
    ///   - body: is told whose; nil for every user, and for every uid.
    ///   - then: only once it has ended.
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
            return respond(.error(CommandError(.denied, reason)))
        }
        let user: OpaqueID? = if case .user(let user) = target { OpaqueID(user) } else { nil }
        let (invalidations, version) = (context.invalidationService, version)
        lifecycle {
            let receipt = try await body(invalidations, user, uid)
            return .reply { $0.writeReceipt(receipt, version) }
        } then: {
            then($0, user, uid)
        }
    }

    // MARK: What runs elsewhere

    /// Runs work that waits elsewhere and takes its result back to the event loop.
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

    /// Everything that is logged on its way names this request.
    private func startTask(_ work: @escaping @Sendable () async -> Void) {
        tasks += 1
        let request = RequestID(client: registration.id, number: tasks, pid: peer.pid)
        Task(executorPreference: context.services.tasks) {
            await RequestID.$current.withValue(request, operation: work)
        }
    }

    func users() {
        let (sessions, uid) = (context.sessions, peer.uid)
        if let known = sessions.knownUserList(of: uid) { return respond(known.reply) }
        lifecycle { try await sessions.userList(of: uid).reply }
    }

    /// Runs a command to its end before the next one starts.
    /// - Parameters:
    ///   - work: returns the reply.
    ///   - then: only if that has not failed.
    func lifecycle(
        _ work: @escaping @Sendable () async throws -> ByteBuffer,
        then: @escaping @Sendable (Connection) -> Void = { _ in }
    ) {
        let replySlot = startBarrier()
        let loops = context.loops
        run {
            let reply = try await work()
            // Else what the cache had answered could reach connections of other loops behind the receipt (I3).
            if loops.loops.count > 1 { try await loops.barrier() }
            return reply
        } then: { connection, result in
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
    /// An array, which looks the same in each version of the protocol.
    fileprivate var reply: ByteBuffer {
        reply { users in
            .reply { buffer in
                buffer.writeArrayHeader(count: users.count)
                for user in users { user.withBytes { buffer.writeBulkString($0) } }
            }
        }
    }
}
