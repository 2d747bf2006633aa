import CacheCore
import Logging
import NIOCore
import SocketLoops
import ThumbcacheProtocol

/// Closing of a connection: by its peer, after a stall, by eviction, or because the daemon stops.
extension Connection {
    func inputEnded() {
        isInputClosed = true
        if phase == .lingering { stream.close() } else { processInput() }
    }

    func handle(_ signal: PeerRegistry.Signal) {
        switch signal {
        case .drain where phase == .serving:
            phase = .stopping
            // Requests that have arrived by now get a reply.
            stream.receiveNow()
            processInput()
        case .drain: break
        case .close: stream.close()
        case .evict(let reason): evict(reason)
        }
    }

    /// Closes after the last reply if no more requests can arrive. Call it once all received requests are started.
    func closeIfOver() {
        let isOver =
            switch phase {
            case .serving: isInputClosed
            case .stopping, .draining: true
            case .closing, .lingering, .closed: false
            }
        guard isOver, replies.isEmpty else { return }
        phase = .closing
        closeIfSent()
    }

    func closeIfSent() {
        guard unread == 0 else { return }
        // An evicted connection no longer counts, so a peer that never closes would hold an uncounted descriptor.
        if isInputClosed || isEvicted { stream.close() } else { linger() }
    }

    /// Closes the output, and reads until the peer closes. Otherwise unread input would reset the connection, and the
    /// peer could not tell whether its request was executed.
    private func linger() {
        phase = .lingering
        reader = RequestReader(limits: limits.request)
        stream.endOutput()
        watchdog?.cancel()
        let limit = TimeAmount.milliseconds(limits.linger)
        watchdog = eventLoop.assumeIsolated().scheduleTask(in: limit) { [stream] in stream.close() }
    }

    /// Removes the waiters from their downloads, and ends held sessions.
    func closed(_ error: IOError?) {
        // Normally a reset or a broken pipe, after which no reply is possible.
        if let error {
            context.log.debug("a connection failed", metadata: ["uid": "\(peer.uid)", "error": "\(error)"])
        }
        phase = .closed
        watchdog?.cancel()
        for waiting in waiting.values {
            waiting.timer.cancel()
            registration.load.leave()
            waiting.cache.leave(waiting.id)
        }
        waiting = [:]
        waitingBytes = 0
        batch = nil
        unsubscribe()
        cancelAfterReplies()
        release(heldSessions)
        heldSessions = []
        releaseMemory()
        loopAccount.charge()
        scheduler.leave(loopAccount)
        recordCounts()
        context.registry.leave(registration.id)
    }

    /// Replies with BUSY and closes soon, even if replies are unread: the connection no longer counts.
    private func evict(_ reason: String) {
        isEvicted = true
        if phase == .lingering { return stream.close() }
        if phase == .serving {
            let refusal = ByteBuffer.error(CommandError(.busy, reason))
            // Each missing element of a started array gets its own error.
            for _ in 0..<(batch?.queries.count ?? 1) { replyNow(refusal) }
            batch = nil
            finish()
            processInput()
        }
        guard !isClosed else { return }
        context.registry.closeSoon(stream, on: eventLoop, after: limits.farewell)
    }

    /// Disconnects a peer that reads nothing, or leaves a frame unfinished, for 1 to 1.25 times `limits.stall`.
    func watch() {
        guard watchdog == nil, !isClosed, progress.isAwaited else { return }
        recheck(since: progress, checks: 1)
    }

    private func recheck(since before: PeerProgress, checks: Int64) {
        let pause = TimeAmount.milliseconds(max(1, limits.stall / Self.checksPerStall))
        watchdog = eventLoop.assumeIsolated().scheduleTask(in: pause) { [weak self] in
            guard let self, !self.isClosed else { return }
            self.watchdog = nil
            guard self.progress.hasStalled(since: before) else { return self.watch() }
            guard checks >= Self.checksPerStall else { return self.recheck(since: before, checks: checks + 1) }
            self.context.sessions.accountLog.write(
                "disconnected a peer that stalled", uid: self.peer.uid,
                ["pid": "\(self.peer.pid)", "unread": "\(self.unread)"], at: self.context.services.time.now)
            self.stream.close()
        }
    }

    private static var checksPerStall: Int64 { 4 }

    private var progress: PeerProgress {
        PeerProgress(
            sent: stream.sent, unread: unread, frames: reader.count,
            // A peer that is not read cannot finish its frame.
            isInsideFrame: phase == .serving && stream.isReading && reader.isInsideFrame)
    }
}

/// A snapshot of a peer's progress, to detect a stall.
struct PeerProgress: Equatable {
    /// Output bytes sent.
    var sent: Int
    var unread: Int
    var frames: Int
    var isInsideFrame: Bool

    /// Whether the peer has to read or send something.
    var isAwaited: Bool { unread > 0 || isInsideFrame }

    /// Whether the peer had to read or send something at both moments, and did neither in between.
    func hasStalled(since earlier: PeerProgress) -> Bool {
        let readsNothing = earlier.unread > 0 && unread > 0 && sent == earlier.sent
        let finishesNothing = earlier.isInsideFrame && isInsideFrame && frames == earlier.frames
        return readsNothing || finishesNothing
    }
}
