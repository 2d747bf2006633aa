import CacheCore
import Logging
import NIOCore
import SocketLoops
import ThumbcacheProtocol

/// How a connection ends: because its peer has said or taken all, is gone, or stalls, or because the daemon stops.
extension Connection {
    /// The peer has said all it wants to say, and may still be reading.
    func inputEnded() {
        isInputClosed = true
        if phase == .lingering { stream.close() } else { work() }
    }

    /// Told by the registry.
    func obey(_ order: PeerRegistry.Order) {
        switch order {
        case .drain where phase == .serving:
            phase = .stopping
            // What has come by now is begun or answered: the peer need not wonder.
            stream.receiveNow()
            work()
        case .drain: break
        case .close: stream.close()
        case .giveWay(let reason): giveWay(reason)
        }
    }

    /// Ends behind the last reply, if nothing more is to come. All that has come in is started.
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
        // A peer that never closes would keep a descriptor that nobody counts.
        if isInputClosed || isEvicted { stream.close() } else { linger() }
    }

    /// Sends the end, and reads on until the peer has seen it and closes. Closing at once would reset a peer that has
    /// something unread here, or break the pipe of one that sends: neither says what became of the request.
    private func linger() {
        phase = .lingering
        reader = RequestReader(limits: limits.request)
        stream.endOutput()
        watchdog?.cancel()
        let most = TimeAmount.milliseconds(limits.linger)
        watchdog = eventLoop.assumeIsolated().scheduleTask(in: most) { [stream] in stream.close() }
    }

    /// The peer is gone: what it waited for it leaves, the sessions that it held end.
    func closed(_ error: IOError?) {
        // A reset or broken pipe is how peers leave; nothing else comes here, and neither can be answered.
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
        forgetAfterReplies()
        release(heldSessions)
        heldSessions = []
        giveBackMemory()
        share.charge()
        turns.leave(share)
        recordCounts()
        context.registry.leave(registration.id)
    }

    /// Another connection has come in for this one, whose descriptor counts nowhere any more: so it closes in a moment,
    /// whatever its peer has yet to read, and at once where many do that already.
    private func giveWay(_ reason: String) {
        isEvicted = true
        if phase == .lingering { return stream.close() }
        if phase == .serving {
            let refusal = ByteBuffer.error(CommandError(.busy, reason))
            // Of an array that is begun each element that is not has its own.
            for _ in 0..<(batch?.queries.count ?? 1) { respond(refusal) }
            batch = nil
            finish()
            work()
        }
        guard !isClosed else { return }
        context.registry.closeSoon(stream, on: eventLoop, after: limits.farewell)
    }

    // MARK: Peers that stall

    /// Disconnects a peer that reads nothing, or leaves a frame unfinished, for `stall`, or a quarter longer at most.
    func watch() {
        guard watchdog == nil, !isClosed, progress.isAwaited else { return }
        lookAgain(since: progress, looks: 1)
    }

    private func lookAgain(since before: PeerProgress, looks: Int64) {
        let pause = TimeAmount.milliseconds(max(1, limits.stall / Self.looksInStall))
        watchdog = eventLoop.assumeIsolated().scheduleTask(in: pause) { [weak self] in
            guard let self, !self.isClosed else { return }
            self.watchdog = nil
            guard self.progress.hasStalled(since: before) else { return self.watch() }
            guard looks >= Self.looksInStall else { return self.lookAgain(since: before, looks: looks + 1) }
            self.context.sessions.uidLog.write(
                "disconnected a peer that stalled", uid: self.peer.uid,
                ["pid": "\(self.peer.pid)", "unread": "\(self.unread)"], at: self.context.services.time.now)
            self.stream.close()
        }
    }

    private static var looksInStall: Int64 { 4 }

    private var progress: PeerProgress {
        PeerProgress(
            sent: stream.sent, unread: unread, frames: reader.count,
            // Nothing is owed by a peer that is not read.
            isInsideFrame: phase == .serving && stream.isReading && reader.isInsideFrame)
    }
}

/// How far a peer had come at one moment, by which a later one tells whether it has stalled.
struct PeerProgress: Equatable {
    /// Bytes it has taken.
    var sent: Int
    /// Bytes it has yet to take.
    var unread: Int
    /// Frames it has completed.
    var frames: Int
    /// Whether it owes the rest of a frame.
    var isInsideFrame: Bool

    /// Whether anything is expected of it.
    var isAwaited: Bool { unread > 0 || isInsideFrame }

    /// Whether what was expected of it then is expected still, and it has done nothing about it.
    func hasStalled(since earlier: PeerProgress) -> Bool {
        let readsNothing = earlier.unread > 0 && unread > 0 && sent == earlier.sent
        let finishesNothing = earlier.isInsideFrame && isInsideFrame && frames == earlier.frames
        return readsNothing || finishesNothing
    }
}
