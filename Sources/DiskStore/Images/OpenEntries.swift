import NIOConcurrencyHelpers
import Synchronization
import ThumbnailCache

/// What an entry says of its image, and the tag that it was sealed with: another text has another tag.
struct SealedRecord: Sendable {
    typealias Tag = SIMD16<UInt8>

    let record: HeldRecord
    let tag: Tag
}

/// An entry whose file is open. It is closed with the last reference: whoever reads it keeps it open, so that its descriptor
/// cannot come to mean another file in the middle.
final class OpenEntry: Sendable {
    /// ``Generation/number``.
    let generation: UInt64
    /// What it was asked for by: with it nobody needs the HMAC of the profile's name.
    let slot: Slot
    let address: EntryAddress
    let file: OpenFile
    /// Bytes of the file.
    let size: Int
    /// So that the record need not be taken apart for each hit.
    let sealed: SealedRecord?
    /// Seconds since 1970.
    let openedAt: Int64
    private let isUsed = Atomic<Bool>(false)

    init(
        _ file: consuming OpenFile, size: Int, sealed: SealedRecord?, generation: UInt64, slot: Slot,
        address: EntryAddress, openedAt: Int64
    ) {
        self.file = file
        self.size = size
        self.sealed = sealed
        self.generation = generation
        self.slot = slot
        self.address = address
        self.openedAt = openedAt
    }

    fileprivate var key: OpenEntries.Key { OpenEntries.Key(generation: generation, slot: slot) }
    fileprivate var name: OpenEntries.Name { OpenEntries.Name(generation: generation, address: address) }

    fileprivate func markUsed() {
        if !isUsed.load(ordering: .relaxed) { isUsed.store(true, ordering: .relaxed) }
    }

    fileprivate func takeMark() -> Bool { isUsed.exchange(false, ordering: .relaxed) }
}

/// Entries that were read a moment ago, kept open, so that a look at the disk makes one system call, preadv2, where it makes
/// four otherwise, and computes no name: 12.5 µs of CPU instead of 16.9 for a hit of 8 KiB. At most `capacity`; which one goes
/// is SIEVE's to say.
///
/// **What is replaced or removed is forgotten** (I3, I7): ``forget(_:of:)`` comes after the name has changed on disk, with the
/// commit lock still held, so before any receipt. Whoever opened the older file just before that would still bring it here
/// afterwards. So every forgetting counts a change, and what was opened before the last change is not taken in. A read that goes
/// on at that moment is the look that ``ThumbnailCache/UserCache/lookAtDisk(_:)`` throws away, as when it had opened the file itself.
///
/// **Only what is looked at for the second time in a second is kept open**: an image that comes to memory at the first look is
/// not looked for on disk again soon.
///
/// **An open entry is good for the second in which it was opened**, and then opened anew: what somebody unlinks, moves or
/// replaces by hand is noticed by then, whether a use is to be noted (``Eviction``) is looked at, and nothing has to be asked of
/// the file for each hit. What nobody asks for again goes with the next maintenance, behind its other work.
final class OpenEntries: Sendable {
    /// What it is asked for by.
    fileprivate struct Key: Hashable {
        let generation: UInt64
        let slot: Slot
    }

    /// What it is replaced and removed by.
    fileprivate struct Name: Hashable {
        let generation: UInt64
        let address: EntryAddress
    }

    private struct State {
        var open: [Key: (entry: OpenEntry, handle: Sieve<OpenEntry>.Handle)] = [:]
        var byName: [Name: OpenEntry] = [:]
        var queue = Sieve<OpenEntry>()
        var changes: UInt64 = 0
        /// What was opened in the second `lookedAt`, by its hash. Two of one hash do no harm.
        var looks: Set<Int> = []
        var lookedAt: Int64 = 0

        /// Whether an entry is opened again soon after it was opened before.
        mutating func isWanted(_ key: Key, at now: Int64, limit: Int) -> Bool {
            if open[key] != nil { return true }
            if lookedAt != now {
                lookedAt = now
                looks.removeAll(keepingCapacity: true)
            }
            if looks.count < limit { return !looks.insert(key.hashValue).inserted }
            return looks.contains(key.hashValue)
        }

        mutating func insert(_ entry: OpenEntry) {
            open[entry.key] = (entry, queue.insert(entry))
            byName[entry.name] = entry
        }

        /// The entry of the same slot goes. What goes is handed out here and below, to be closed outside the lock.
        mutating func remove(_ entry: OpenEntry) -> OpenEntry? {
            guard let found = open.removeValue(forKey: entry.key) else { return nil }
            queue.remove(found.handle)
            byName[entry.name] = nil
            return found.entry
        }

        /// One goes that was not used since it was last looked at.
        mutating func evict() -> OpenEntry? {
            guard let entry = queue.evict(takeMark: { $0.takeMark() }) else { return nil }
            open[entry.key] = nil
            byName[entry.name] = nil
            return entry
        }
    }

    private let state = NIOLockedValueBox(State())
    private let capacity: Int

    /// - Parameter capacity: descriptors that may be open here; 0 for none.
    init(capacity: Int) { self.capacity = capacity }

    /// The open entry of a slot. Costs a lock and a look-up.
    func entry(of slot: Slot, in generation: UInt64, at now: Int64) -> OpenEntry? {
        let key = Key(generation: generation, slot: slot)
        guard let entry = state.withLockedValue({ $0.open[key]?.entry }), entry.openedAt == now else { return nil }
        entry.markUsed()
        return entry
    }

    /// Grows whenever a name comes to mean something else. To be looked at before an entry is opened.
    var changes: UInt64 { state.withLockedValue { $0.changes } }

    /// Keeps an entry open if it is wanted, unless it may be what its name meant before.
    func keep(_ entry: OpenEntry, ifNothingChangedSince changes: UInt64) {
        guard capacity > 0 else { return }
        _ = state.withLockedValue { state -> (OpenEntry?, OpenEntry?) in
            guard state.changes == changes, state.isWanted(entry.key, at: entry.openedAt, limit: capacity) else {
                return (nil, nil)
            }
            let older = state.remove(entry)
            let evicted = state.open.count < capacity ? nil : state.evict()
            state.insert(entry)
            return (older, evicted)
        }
    }

    /// The name has come to mean another file, or none.
    func forget(_ address: EntryAddress, of generation: UInt64) {
        _ = state.withLockedValue { state -> OpenEntry? in
            state.changes += 1
            return state.byName[Name(generation: generation, address: address)].flatMap { state.remove($0) }
        }
    }

    /// The generation has ended, and nobody reads it any more: all of its files are closed when this returns.
    func removeAll(of generation: UInt64) { removeAll { $0.generation == generation } }

    /// Closes what is not good any more, whichever way the clock was set. A file that was unlinked by hand takes room as long as it is
    /// open.
    func removeAll(notOpenedAt second: Int64) { removeAll { $0.openedAt != second } }

    /// Closes all that nobody reads. False when there was nothing to give up.
    func giveUpAll() -> Bool { !removeAll { _ in true }.isEmpty }

    @discardableResult
    private func removeAll(where isGone: (OpenEntry) -> Bool) -> [OpenEntry] {
        state.withLockedValue { state in
            state.byName.values.filter(isGone).compactMap { state.remove($0) }
        }
    }
}
