import Fleet
import LinuxSupport

/// Why a relay may have missed logouts.
enum Gap: String, Sendable {
    /// First start, or the position file is lost or damaged.
    case noPosition = "no position is known"
    /// FLUSHALL, a lost database, or another server.
    case otherStream = "the stream has a different identity"
    /// The same with an earlier identity: a restored backup, or a former master.
    case earlierStream = "the stream has an earlier identity"
    /// A failover that lost writes, or a restored backup.
    case wentBack = "the stream ends before the position"
    /// A restored backup with later writes.
    case rewritten = "the stream no longer has the entry at the position"
    case trimmed = "entries were trimmed before they were read"
    /// The entry at the position was trimmed. Or a failover lost it, and as many entries were removed as this relay had
    /// read.
    case unproven = "the entry at the position is gone, and the server has no acknowledgment of it"
    case deleted = "entries were deleted before they were read"
}

/// The reaction to possibly missed logouts.
enum GapPolicy: String, CaseIterable, Sendable {
    case logoutAll = "logout-all"
    case purgeAll = "purge-all"
    case ignore
}

/// The next step of the relay.
enum Decision: Sendable {
    /// Set an identity later than `after`, then read again: the stream has none, or lost entries that were read here.
    case nameStream(after: UInt64, Gap?)
    /// Apply the policy; after the daemon's confirmation, save the position.
    case closeGap(Gap, then: Position)
    /// Perform the entries in order; after the daemon's confirmations, save the position. If an entry fails, save the
    /// position of the preceding one.
    case execute([StreamEntry], then: Position)
    /// Nothing to do.
    case wait
    /// The stream is damaged until an administrator repairs it. Apply the policy once for each new state of it; save no
    /// position.
    case reject(StreamDamage)
}

extension Decision {
    /// Pure. After acting on a decision, the relay takes a new snapshot; actions whose position was not saved are
    /// repeated, which is harmless.
    ///
    /// - Parameters:
    ///   - saved: the position on disk, if any.
    ///   - snapshot: the stream, its entries after the saved position, and this host's row.
    init(_ saved: Position?, _ snapshot: StreamSnapshot, _ policy: GapPolicy) {
        if let damage = snapshot.damage {
            self = .reject(damage)
            return
        }
        // A position or identity from the far future would force all later identities into the future.
        let saved = saved.flatMap { StreamDamage.isPossible($0.latest, at: snapshot.time) ? $0 : nil }
        guard let streamIdentity = snapshot.streamIdentity, StreamIdentity.isOne(streamIdentity),
            StreamDamage.isPossible(StreamIdentity.start(streamIdentity), at: snapshot.time)
        else {
            self = .nameStream(after: saved?.latest ?? 0, nil)
            return
        }
        if let saved, let loss = Gap(losing: saved, snapshot, streamIdentity) {
            self = .nameStream(after: max(saved.latest, StreamIdentity.start(streamIdentity)), loss)
            return
        }
        if let gap = Gap(saved, snapshot, streamIdentity) {
            self = .closeGap(gap, then: Position(after: snapshot, streamIdentity, policy))
            return
        }
        guard let saved, let stream = snapshot.stream, let last = stream.entries.last else {
            self = .wait
            return
        }
        var next = saved
        if last.id == stream.lastEntryID {
            // The last id may belong to a deleted entry.
            (next.id, next.count, next.wasSeen) = (stream.lastID, stream.added, stream.hasLast)
        } else {
            next = saved.after(stream.entries[...])
        }
        self = .execute(stream.entries, then: next)
    }
}

extension Gap {
    /// Nil if no entry was missed.
    fileprivate init?(_ saved: Position?, _ snapshot: StreamSnapshot, _ streamIdentity: String) {
        guard let saved else {
            self = .noPosition
            return
        }
        if saved.streamIdentity != streamIdentity {
            self = .otherStream
        } else if let stream = snapshot.stream, stream.removed > saved.count {
            self = .trimmed
        } else if let stream = snapshot.stream, stream.hasDeletedUnread(saved) {
            self = .deleted
        } else if let stream = snapshot.stream, stream.removed == saved.count, stream.added > saved.count,
            saved.count > 0, !stream.hasPosition, !snapshot.hasAcknowledgment(of: saved)
        {
            self = .unproven
        } else {
            return nil
        }
    }

    /// Why the stream lost entries up to the saved position; nil if it did not, or if its identity is later than
    /// everything known here. Undetected once as many entries are removed as were read: a lost entry then looks like a
    /// trimmed one.
    fileprivate init?(losing saved: Position, _ snapshot: StreamSnapshot, _ streamIdentity: String) {
        guard saved.streamIdentity == streamIdentity else {
            if StreamIdentity.start(streamIdentity) > saved.latest { return nil }
            self = .earlierStream
            return
        }
        guard let stream = snapshot.stream else {
            if saved.id == .zero { return nil }
            self = .wentBack
            return
        }
        if stream.lastID < saved.id || stream.added < saved.count {
            self = .wentBack
        } else if stream.removed > saved.count {
            return nil
        } else if stream.added == saved.count, stream.lastID != saved.id {
            // The same number of entries, but different ones.
            self = .rewritten
        } else if saved.wasSeen, !stream.hasPosition, stream.lastDeletedID != saved.id, stream.removed < saved.count {
            self = .rewritten
        } else {
            return nil
        }
    }
}

extension StreamSnapshot {
    /// Whether the server has this host's acknowledgment of a position. It is a later write than the entry at the
    /// position, so a server that has it has not lost the entry.
    fileprivate func hasAcknowledgment(of saved: Position) -> Bool {
        guard let row else { return false }
        return row.streamIdentity == saved.streamIdentity && row.id >= saved.id
    }
}

extension StreamSnapshot.Stream {
    /// Whether XDEL removed an entry that the relay had not read.
    fileprivate func hasDeletedUnread(_ saved: Position) -> Bool {
        if lastDeletedID > max(saved.id, saved.deleted) { return true }
        // A smaller id than the greatest deleted one shows only in the count, once all later entries are known.
        let isWhole = lastEntryID.map { $0 <= entries.last?.id ?? saved.id } ?? true
        return isWhole && added.saturatingSubtract(saved.count) > entries.count
    }
}

extension Position {
    /// The latest server time known to this relay.
    fileprivate var latest: UInt64 { max(StreamIdentity.start(streamIdentity), id.milliseconds) }

    /// The position after a gap. `logout-all` covers all entries of the snapshot; otherwise all entries still present
    /// are processed, some of them again.
    fileprivate init(after snapshot: StreamSnapshot, _ streamIdentity: String, _ policy: GapPolicy) {
        guard let stream = snapshot.stream else {
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
