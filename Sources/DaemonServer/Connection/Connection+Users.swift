import Logging
import NIOCore
import RESP
import SocketLoops
import ThumbcacheProtocol
import ThumbnailCache

/// Log-in, and what runs to its end before the next command starts: log-out, purge and what is asked of the sessions.
extension Connection {
    /// - Parameter request: with nothing in it that shares the bytes it came in.
    func logIn(_ request: LoginRequest, of owner: Owner) {
        let session = HeldSession(owner: owner, session: request.session)
        if request.heldBy != nil, held.count >= Self.heldSessions, !held.contains(session) {
            let reason = "this connection holds \(Self.heldSessions) sessions: log one out, or use another connection"
            return respond(.error(CommandError(.busy, reason)))
        }
        let ticket = holdUp()
        let me = NIOLoopBound(self, eventLoop: eventLoop)
        // In the loop's next turn, when it is known whether the peer was gone before its command was read: one that died while the
        // daemon was away may have been logged out since, by a log-out that was honoured before anybody was served.
        eventLoop.execute {
            if me.value.isClosed { me.value.letOthersPass() } else { me.value.logIn(request, session, ticket) }
        }
    }

    private func logIn(_ request: LoginRequest, _ session: HeldSession, _ ticket: ReplyQueue.Ticket) {
        let context = context
        run {
            try await context.logIn(session.owner, request)
        } then: { connection, result in
            if case .failure(let error) = result { return connection.resume(ticket, with: .error(CommandError(error))) }
            if request.heldBy != nil {
                if connection.isClosed {
                    // The peer went while it was being logged in: nothing else will ever end this session.
                    connection.release([session])
                } else {
                    connection.held.insert(session)
                }
            }
            connection.resume(ticket, with: .ok)
        }
    }

    /// Sessions that one connection may hold.
    private static var heldSessions: Int { 1024 }

    func logOut(_ command: LogoutCommand) {
        let uid = command.uid ?? peer.uid
        lifecycle {
            .receipt(try await $0.logOut(command, peer: $1))
        } then: { connection, result in
            guard case .success = result else { return }
            // What has ended need not be ended again.
            connection.held = connection.held.filter { !command.ends($0.session, of: $0.owner, uid: uid) }
        }
    }

    func users() {
        if let known = context.sessions.knownUserList(of: peer.uid) { return respond(known.reply) }
        lifecycle { .users(try await $0.sessions.userList(of: $1.uid)) }
    }

    /// Ends sessions that this connection held, one after another: a connection is one task, however many it holds.
    func release(_ sessions: Set<HeldSession>) {
        guard !sessions.isEmpty else { return }
        let (logout, log, id) = (context.logout, context.log, place.id)
        Task(executorPreference: context.tasks) {
            for held in sessions {
                do throws(CacheFailure) {
                    try await logout.release(held.owner, session: held.session, connection: id)
                } catch {
                    // What could not be made durable is closed and tried again by the service; it has logged why.
                    log.debug("a held session did not end at once", metadata: ["uid": "\(held.owner.uid)"])
                }
            }
        }
    }

    /// What a command that runs elsewhere answers.
    enum LifecycleReply: Sendable {
        case receipt(Receipt)
        case users(UserList)
        case status(UserSessions.Status?)
    }

    /// Runs a command to its end before the next one starts.
    func lifecycle(
        _ work: @escaping @Sendable (ServerContext, Peer) async throws -> LifecycleReply,
        then: @escaping @Sendable (Connection, Result<LifecycleReply, any Error>) -> Void = { _, _ in }
    ) {
        let ticket = holdUp()
        let (context, peer) = (context, peer)
        run {
            let reply = try await work(context, peer)
            try await context.settleLoops()
            return reply
        } then: { connection, result in
            then(connection, result)
            connection.resume(ticket, with: connection.render(result))
        }
    }

    private func render(_ result: Result<LifecycleReply, any Error>) -> ByteBuffer {
        switch result {
        case .success(.receipt(let receipt)): .reply { $0.writeReceipt(receipt, version) }
        case .success(.users(let users)): users.reply
        case .success(.status(let status?)): .reply { $0.writeStatus(status, version) }
        case .success(.status(nil)): .reply { $0.writeNull(kind: .map, version: version) }
        case .failure(let error): .error(CommandError(error))
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

extension LogoutCommand {
    /// - Parameter uid: whose sessions the command is about.
    fileprivate func ends(_ session: OpaqueID, of owner: Owner, uid: UInt32) -> Bool {
        let isUser =
            switch target {
            case .all: true
            case .user(let user): owner.user == OpaqueID(user)
            }
        return owner.uid == uid && isUser && (self.session.map { OpaqueID($0) == session } ?? true)
    }
}
