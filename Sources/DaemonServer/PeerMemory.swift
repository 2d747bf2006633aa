import DequeModule
import NIOConcurrencyHelpers

/// What the connections of one uid hold in memory together, beyond the free share of each (I8), and the line of those who wait for room.
///
/// Nobody comes here whose connection stays within ``HeldMemory/share``. The limit comes with each call: connections of one uid may have
/// begun before and after a reload.
final class PeerMemory: Sendable {
    /// Somebody who waits for room.
    private struct Claim: Sendable {
        let id: UInt64
        let bytes: Int
        let limit: Int
        let isFirst: Bool
        let granted: @Sendable (UInt64) -> Void
    }

    private struct State {
        var bytes = 0
        var lastID: UInt64 = 0
        var line: Deque<Claim> = []

        mutating func take(_ count: Int, limit: Int) -> Bool {
            guard bytes + count <= limit else { return false }
            bytes += count
            return true
        }
    }

    private let state = NIOLockedValueBox(State())

    /// Bytes that count now.
    var bytes: Int { state.withLockedValue { $0.bytes } }
    /// How many connections wait for room.
    var waiting: Int { state.withLockedValue { $0.line.count } }

    /// Takes so many bytes more, whoever waits; false if there is no room.
    func take(_ count: Int, limit: Int) -> Bool {
        state.withLockedValue { $0.take(count, limit: limit) }
    }

    /// The same, unless others wait in line before.
    /// - Parameter claim: the caller's own place in the line, which may be for more than it needs by now.
    func takeInTurn(_ count: Int, limit: Int, claim: UInt64?) -> Bool {
        state.withLockedValue { state in
            let isNext = state.line.first.map { $0.id == claim } ?? true
            return isNext && state.take(count, limit: limit)
        }
    }

    /// Counts what is there already, room or not.
    func add(_ count: Int) {
        state.withLockedValue { $0.bytes += count }
    }

    /// Gives bytes back, to those who wait first.
    func give(_ count: Int) {
        change { $0.bytes -= count }
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
        change { state in
            state.lastID += 1
            let claim = Claim(id: state.lastID, bytes: count, limit: limit, isFirst: isFirst, granted: granted)
            let index = isFirst ? state.line.firstIndex { !$0.isFirst } : nil
            state.line.insert(claim, at: index ?? state.line.endIndex)
            return claim.id
        }
    }

    /// Leaves the line. Who is not there has been granted the bytes, and is, or is about to be, told so.
    func leave(_ id: UInt64) {
        change { $0.line.removeAll { $0.id == id } }
    }

    /// Changes what there is, and gives those in front what they wait for, as far as there is room then.
    private func change<Result>(_ body: (inout State) -> Result) -> Result {
        let (result, granted) = state.withLockedValue { state in
            let result = body(&state)
            var granted: [Claim] = []
            while let first = state.line.first, state.take(first.bytes, limit: first.limit) {
                granted.append(state.line.removeFirst())
            }
            return (result, granted)
        }
        for claim in granted { claim.granted(claim.id) }
        return result
    }
}
