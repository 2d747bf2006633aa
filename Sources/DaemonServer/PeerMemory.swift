import DequeModule
import NIOConcurrencyHelpers
import Synchronization

/// What the connections of one uid hold in memory together, beyond the free share of each (I8).
///
/// A number that nobody touches whose connection stays within ``HeldMemory/share``. Whoever is told that there is no room can wait in
/// line; only those who do, and those who give back while somebody does, take a lock.
///
/// The limit comes with each call: connections of one uid may have begun before and after a reload.
final class PeerMemory: Sendable {
    /// Somebody who waits for room.
    private struct Claim: Sendable {
        let id: UInt64
        let bytes: Int
        let limit: Int
        let isFirst: Bool
        let granted: @Sendable (UInt64) -> Void
    }

    private struct Line {
        var lastID: UInt64 = 0
        var claims: Deque<Claim> = []
    }

    // Whoever joins the line looks for room behind it, and whoever gives back looks for a line behind it, both in the one order
    // that all threads see: so one of the two finds the other.
    private let taken = Atomic<Int>(0)
    private let hasLine = Atomic<Bool>(false)
    private let line = NIOLockedValueBox(Line())

    /// Bytes that count now.
    var bytes: Int { taken.load(ordering: .relaxed) }
    /// How many connections wait for room.
    var waiting: Int { line.withLockedValue { $0.claims.count } }

    /// Takes so many bytes more; false if there is no room.
    /// - Parameter behindLine: whether those who wait in line come first.
    func take(_ count: Int, limit: Int, behindLine: Bool = false) -> Bool {
        if behindLine && hasLine.load(ordering: .sequentiallyConsistent) { return false }
        var before = taken.load(ordering: .sequentiallyConsistent)
        while before + count <= limit {
            let (isDone, found) = taken.weakCompareExchange(
                expected: before, desired: before + count, ordering: .sequentiallyConsistent)
            if isDone { return true }
            before = found
        }
        return false
    }

    /// Counts what is there already, room or not.
    func add(_ count: Int) {
        taken.add(count, ordering: .sequentiallyConsistent)
    }

    /// Gives bytes back, to those who wait first.
    func give(_ count: Int) {
        taken.subtract(count, ordering: .sequentiallyConsistent)
        if hasLine.load(ordering: .sequentiallyConsistent) { grant() }
    }

    // MARK: Waiting

    /// Waits in line for so many bytes.
    /// - Parameters:
    ///   - isFirst: before those who are not, for who has begun something that others wait for the end of.
    ///   - granted: told once, on any thread, when the bytes are taken in its name; with the number of the claim.
    /// - Returns: a number to leave the line by.
    func wait(
        for count: Int, limit: Int, isFirst: Bool, granted: @escaping @Sendable (UInt64) -> Void
    ) -> UInt64 {
        let id = line.withLockedValue { line in
            line.lastID += 1
            let claim = Claim(id: line.lastID, bytes: count, limit: limit, isFirst: isFirst, granted: granted)
            let index = isFirst ? line.claims.firstIndex { !$0.isFirst } : nil
            line.claims.insert(claim, at: index ?? line.claims.endIndex)
            hasLine.store(true, ordering: .sequentiallyConsistent)
            return line.lastID
        }
        grant()
        return id
    }

    /// Leaves the line. False if the bytes were taken already: then the claim is, or is about to be, told so.
    func leave(_ id: UInt64) -> Bool {
        let wasThere = line.withLockedValue { line in
            guard let index = line.claims.firstIndex(where: { $0.id == id }) else { return false }
            line.claims.remove(at: index)
            hasLine.store(!line.claims.isEmpty, ordering: .sequentiallyConsistent)
            return true
        }
        // It may have been what held up those behind it.
        if wasThere { grant() }
        return wasThere
    }

    /// Gives those in front what they wait for, as far as there is room.
    private func grant() {
        let granted = line.withLockedValue { line in
            var granted: [Claim] = []
            while let first = line.claims.first, take(first.bytes, limit: first.limit) {
                granted.append(line.claims.removeFirst())
            }
            hasLine.store(!line.claims.isEmpty, ordering: .sequentiallyConsistent)
            return granted
        }
        for claim in granted { claim.granted(claim.id) }
    }
}
