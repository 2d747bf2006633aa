import Fleet
import LinuxSupport

/// Why a relay has missed log-outs that it cannot name.
enum Gap: String, Sendable {
    /// There is no position: the first start, or the file is lost or damaged.
    case noPosition = "no position is known"
    /// FLUSHALL, a database that was lost, or another server.
    case otherStream = "it is another stream than before"
    /// The same, where its name is from before: a backup that was restored, or a server that was the master once.
    case earlierStream = "it is a stream from before"
    /// A fail-over that lost writes, or a backup that was restored.
    case wentBack = "the stream ends before the position"
    /// A backup that was restored, and written to since.
    case rewritten = "the entry at the position was never there"
    case trimmed = "entries were trimmed before they were read"
    case deleted = "entries were deleted before they were read"
}

/// What is done where log-outs may have been missed.
enum GapPolicy: String, CaseIterable, Sendable {
    case logoutAll = "logout-all"
    case purgeAll = "purge-all"
    case ignore
}

/// What follows from a look at the stream.
enum Decision: Sendable {
    /// The stream has no name, or has lost what was read here: it gets one of a later moment, and is looked at again.
    case nameStream(after: UInt64, Gap?)
    /// The policy's action, and when that has its receipt, this position.
    case closeGap(Gap, then: Position)
    /// These, in order, and when they have their receipts, this position.
    case carryOut([StreamEntry], then: Position)
    /// There is nothing to do.
    case wait
    /// The stream cannot be followed until an administrator repairs it. The policy's action is due for each state of it
    /// that is new, and no position is taken.
    case reject(StreamDamage)
}

extension Decision {
    /// A value without effects: whoever acts on it looks again, and whatever was done without having been kept on
    /// record is done once more, which is harmless.
    ///
    /// - Parameters:
    ///   - saved: the position that is on disk; nil where there is none.
    ///   - look: at the stream, and at what is behind the saved position.
    init(_ saved: Position?, _ look: StreamSnapshot, _ policy: GapPolicy) {
        if let damage = look.damage {
            self = .reject(damage)
            return
        }
        // A position or a name from the far future would force all later names to be later still.
        let saved = saved.flatMap { StreamDamage.isPossible($0.latest, at: look.time) ? $0 : nil }
        guard let streamIdentity = look.streamIdentity, StreamIdentity.isOne(streamIdentity),
            StreamDamage.isPossible(StreamIdentity.start(streamIdentity), at: look.time)
        else {
            self = .nameStream(after: saved?.latest ?? 0, nil)
            return
        }
        if let saved, let loss = Gap(losing: saved, look, streamIdentity) {
            self = .nameStream(after: max(saved.latest, StreamIdentity.start(streamIdentity)), loss)
            return
        }
        if let gap = Gap(saved, look, streamIdentity) {
            self = .closeGap(gap, then: Position(behind: look, streamIdentity, policy))
            return
        }
        guard let saved, let stream = look.stream, let last = stream.entries.last else {
            self = .wait
            return
        }
        var next = saved
        if last.id == stream.lastEntryID {
            // The last id may be that of an entry that was deleted.
            (next.id, next.count, next.wasSeen) = (stream.lastID, stream.added, stream.hasLast)
        } else {
            (next.id, next.wasSeen) = (last.id, true)
            next.count = saved.count.saturatingAdd(stream.entries.count)
        }
        self = .carryOut(stream.entries, then: next)
    }
}

extension Gap {
    /// Nil where nothing is missing, as far as can be known. What is not seen: that a stream lost its end, and entries
    /// that came then were trimmed unread, both between two looks. For that they would have to be trimmed by hand.
    fileprivate init?(_ saved: Position?, _ look: StreamSnapshot, _ streamIdentity: String) {
        guard let saved else {
            self = .noPosition
            return
        }
        if saved.streamIdentity != streamIdentity {
            self = .otherStream
        } else if let stream = look.stream, stream.removed > saved.count {
            self = .trimmed
        } else if let stream = look.stream, stream.hasDeletedUnread(saved) {
            self = .deleted
        } else {
            return nil
        }
    }

    /// Why the stream no longer has what it had at the saved position; nil where it has, or where its
    /// name is later than all that is known here.
    fileprivate init?(losing saved: Position, _ look: StreamSnapshot, _ streamIdentity: String) {
        guard saved.streamIdentity == streamIdentity else {
            if StreamIdentity.start(streamIdentity) > saved.latest { return nil }
            self = .earlierStream
            return
        }
        guard let stream = look.stream else {
            if saved.id == .zero { return nil }
            self = .wentBack
            return
        }
        if stream.lastID < saved.id || stream.added < saved.count {
            self = .wentBack
        } else if stream.removed > saved.count {
            return nil
        } else if stream.added == saved.count, stream.lastID != saved.id {
            // As many entries, and others.
            self = .rewritten
        } else if saved.wasSeen, !stream.hasPosition, stream.lastDeletedID != saved.id, stream.removed < saved.count {
            self = .rewritten
        } else {
            return nil
        }
    }
}

extension StreamSnapshot.Stream {
    /// Whether XDEL removed an entry that the relay had not read.
    fileprivate func hasDeletedUnread(_ saved: Position) -> Bool {
        if lastDeletedID > max(saved.id, saved.deleted) { return true }
        // A smaller id than the greatest deleted one shows only in the count, once all entries after the position are known.
        let isWhole = lastEntryID.map { $0 <= entries.last?.id ?? saved.id } ?? true
        return isWhole && added.saturatingSubtract(saved.count) > entries.count
    }
}

extension Position {
    /// Nothing that is known here is from later, by the server's clock.
    fileprivate var latest: UInt64 { max(StreamIdentity.start(streamIdentity), id.milliseconds) }

    /// Where to go on behind a gap. When everybody is logged out, whatever the stream had at the look is done. Else all
    /// that is still there is carried out: what was done before is done once more.
    fileprivate init(behind look: StreamSnapshot, _ streamIdentity: String, _ policy: GapPolicy) {
        guard let stream = look.stream else {
            self.init(streamIdentity: streamIdentity, id: .zero, count: 0, wasSeen: false)
            return
        }
        if policy != .logoutAll, let first = stream.firstID {
            self.init(
                streamIdentity: streamIdentity, id: first.predecessor, count: stream.removed, wasSeen: false,
                deleted: stream.lastDeletedID)
        } else {
            self.init(
                streamIdentity: streamIdentity, id: stream.lastID, count: stream.added, wasSeen: stream.hasLast,
                deleted: stream.lastDeletedID)
        }
    }
}
