import CacheCore
import LinuxSupport
import NIOCore
import ThumbcacheProtocol

/// Execution of commands.
extension Connection {
    /// Executes a request: a plain GET of a user with an open cache without parsing it, which would cost 1,000
    /// instructions, a fifth of a hit; others as a ``Command``.
    func execute(_ request: Request) {
        guard !acceptsEventsOnly, let cache = cacheOfPlainGet(request) else { return parseAndExecute(request) }
        getPlain(request, from: cache)
    }

    func parseAndExecute(_ request: Request) {
        defer { loopAccount.charge() }
        let command: Command
        // A waiting request must not retain the loop's whole read buffer.
        let kept = request.detached()
        do throws(CommandError) {
            command = try Command(kept, limits: limits.request)
            if acceptsEventsOnly && !command.isAllowedWhileSubscribed { throw .subscribed }
        } catch {
            // May contain the tokens of a LOGIN. `kept` may share or copy the bytes, so both are wiped.
            request.wipe()
            kept.wipe()
            return replyNow(.error(error))
        }
        switch command {
        case .get(let get): self.get(get)
        case .mget(let mget): self.mget(mget)
        case .put(let put): self.put(put)
        case .warm(let warm): self.warm(warm)
        case .stat(let stat): self.stat(stat)
        case .explain(let explain): self.explain(explain)
        case .login(let login):
            logIn(login)
            request.wipe()
            kept.wipe()
        case .logout(let logout): logOut(logout)
        case .purge(let purge): self.purge(purge)
        case .users: users()
        case .subscribe(let targets): subscribe(targets)
        case .unsubscribe(let targets): unsubscribe(targets)
        case .hello(let hello): self.hello(hello)
        case .ping(let message) where acceptsEventsOnly:
            replyNow(
                .reply { buffer in
                    buffer.writeArrayHeader(count: 2)
                    buffer.writeBulkString("pong")
                    buffer.writeBulkString(message ?? ByteBuffer())
                })
        case .ping(nil): replyNow(.reply { $0.writeSimpleString("PONG") })
        case .ping(let message?), .echo(let message): replyNow(.reply { $0.writeBulkString(message) })
        case .quit:
            replyNow(.ok)
            finish()
        case .reset:
            unsubscribe()
            version = .two
            registration.client.setName("")
            replyNow(.reply { $0.writeSimpleString("RESET") })
        case .select: replyNow(.ok)
        case .client(let client): self.client(client)
        case .command(let query): replyNow(context.commands.reply(to: query, version: version))
        case .info(let sections): info(sections)
        case .metrics: metrics()
        }
    }

    private func info(_ sections: [String]) {
        // The counts include this request and those that arrived with it.
        recordCounts()
        let preparations = context.info.preparations(for: sections, peer)
        guard !preparations.isEmpty else { return replyNow(infoReply(sections)) }
        let replySlot = startBarrier()
        run {
            for prepare in preparations { await prepare() }
        } then: { connection, _ in
            defer { connection.loopAccount.charge() }
            connection.endBarrier(replySlot, with: connection.infoReply(sections))
        }
    }

    private func infoReply(_ sections: [String]) -> ByteBuffer {
        let text = context.info.text(sections, for: peer) {
            context.sessions.figures(of: peer.isObserver ? nil : peer.uid)
        }
        let version = version
        return .reply { $0.writeVerbatimString(text, version: version) }
    }

    /// For observers only: METRICS has values of all uids.
    private func metrics() {
        guard peer.isObserver else {
            let reason =
                "METRICS: you are uid \(peer.uid), and only admins and observers may use it (access.observers)"
            return replyNow(.error(CommandError(.denied, reason)))
        }
        let (metrics, version) = (context.metrics, version)
        runAtBarrier {
            let text = await metrics.text()
            return .reply { $0.writeVerbatimString(text, version: version) }
        }
    }

    private func hello(_ command: HelloCommand) {
        if command.hasAuth {
            let reason = "AUTH is not supported: the kernel reports the caller's uid (\(peer.uid))"
            return replyNow(.error(CommandError(.err, reason)))
        }
        if let version = command.version.flatMap(RESPVersion.init) {
            if version != self.version && subscriptions != nil {
                let reason = "HELLO \(version.rawValue): this connection is subscribed; UNSUBSCRIBE first"
                return replyNow(.error(CommandError(.err, reason)))
            }
            self.version = version
        }
        if let name = command.name { registration.client.setName(String(buffer: name)) }
        replyNow(
            .reply { buffer in
                buffer.writeMapHeader(count: HelloKey.allCases.count, version: version)
                for key in HelloKey.allCases {
                    buffer.writeBulkString(key.rawValue)
                    switch key {
                    case .server: buffer.writeBulkString("thumbcached")
                    case .version: buffer.writeBulkString(Version.current)
                    case .proto: buffer.writeRESPInteger(version.rawValue)
                    case .id: buffer.writeRESPInteger(Int(registration.client.id))
                    case .mode: buffer.writeBulkString("standalone")
                    case .role: buffer.writeBulkString("master")
                    case .modules: buffer.writeArrayHeader(count: 0)
                    }
                }
            })
    }

    private func client(_ command: ClientCommand) {
        switch command {
        case .id: replyNow(.reply { $0.writeRESPInteger(Int(registration.client.id)) })
        case .list:
            let text = context.registry.list(for: peer, now: .now())
            replyNow(.reply { $0.writeVerbatimString(text, version: version) })
        case .getName:
            let name = registration.client.labels.name
            replyNow(.reply { name.isEmpty ? $0.writeNull(version: version) : $0.writeBulkString(name) })
        case .setName(let name):
            registration.client.setName(String(buffer: name))
            replyNow(.ok)
        case .setInfo(let key, let value):
            registration.client.setLabel(key, String(buffer: value))
            replyNow(.ok)
        case .capabilities: replyNow(.ok)
        }
    }

    func owner(_ user: ByteBuffer) -> Owner {
        Owner(uid: peer.uid, user: OpaqueID(user))
    }

    /// Finds the cache of a user that is not in memory. Waits for a logout or purge in progress.
    /// - Parameters:
    ///   - kind: the kind of null reply for a user who is not logged in; nil for the error NOLOGIN.
    ///   - keepsBarrier: whether later commands stay blocked once the user is found.
    func lookUp(
        _ user: ByteBuffer, orNull kind: NullKind? = nil, keepsBarrier: Bool = false,
        then: @escaping @Sendable (Connection, UserCache, ReplyQueue.ReplySlot) -> Void
    ) {
        let replySlot = startBarrier()
        let owner = self.owner(user)
        let sessions = context.sessions
        run {
            try await sessions.cache(owner)
        } then: { connection, result in
            switch result {
            case .success(let cache):
                guard !connection.isClosed else { return connection.endBarrier() }
                if !keepsBarrier { connection.endBarrier() }
                then(connection, cache, replySlot)
                connection.processInput()
            case .failure(CacheFailure.notLoggedIn) where kind != nil:
                let version = connection.version
                connection.endBarrier(replySlot, with: .reply { $0.writeNull(kind: kind ?? .bulk, version: version) })
            case .failure(let error):
                connection.endBarrier(replySlot, with: .error(CommandError(error)))
            }
        }
    }
}
