import DequeModule

/// Work of many owners, taken out by turns: deficit round robin (Shreedhar and Varghese, 1996).
///
/// Each owner has a line of its own. At its turn an owner has a quantum to spend on what stands first in its line. What is too
/// expensive for one quantum waits until the owner has saved enough for it. An owner with a thousand pieces in line is
/// served no sooner than one with a single piece (I8).
///
/// A cost can be told afterwards, too: ``charge(_:to:)`` takes what a piece really cost from the owner's next turns.
///
/// A value without effects. Each call costs a look at every owner that has something in line, at most.
public struct FairQueue<Owner: Hashable & Sendable, Element: Sendable>: Sendable {
    private struct Line {
        var waiting: Deque<(element: Element, cost: Int)> = []
        /// What the owner may still spend; below zero when a piece cost more than was thought.
        var credit = 0
    }

    private let quantum: Int
    private var lines: [Owner: Line] = [:]
    /// The owners with something in line, the one whose turn it is first.
    private var turns: Deque<Owner> = []
    /// Pieces in all lines.
    public private(set) var count = 0

    public var isEmpty: Bool { count == 0 }
    /// Owners with something in line.
    public var owners: Int { turns.count }

    /// - Parameter quantum: what an owner may spend at each turn, in the unit of the costs; 1 or more.
    public init(quantum: Int) {
        self.quantum = max(1, quantum)
    }

    /// How many pieces of an owner are in line.
    public func count(of owner: Owner) -> Int { lines[owner]?.waiting.count ?? 0 }

    /// Puts a piece at the end of its owner's line.
    /// - Parameter cost: from 0 to 64 quanta; what is more counts as 64.
    public mutating func append(_ element: Element, of owner: Owner, cost: Int) {
        if lines[owner] == nil { turns.append(owner) }
        lines[owner, default: Line()].waiting.append((element, min(max(0, cost), 64 * quantum)))
        count += 1
    }

    /// Takes the next piece out; nil when there is none, or only of owners that may have none.
    /// - Parameter mayHave: asked for each owner whose turn it is. One that may not keeps its place in line, and saves nothing.
    public mutating func popFirst(mayHave: (Owner) -> Bool = { _ in true }) -> (owner: Owner, element: Element)? {
        var refused = 0
        while refused < turns.count, let owner = turns.first, var line = lines[owner], let first = line.waiting.first {
            guard mayHave(owner) else {
                refused += 1
                passTurn()
                continue
            }
            refused = 0
            guard line.credit >= first.cost else {
                lines[owner]?.credit += quantum
                passTurn()
                continue
            }
            line.credit -= first.cost
            line.waiting.removeFirst()
            count -= 1
            lines[owner] = line.waiting.isEmpty ? nil : line
            if line.waiting.isEmpty { turns.removeFirst() }
            return (owner, first.element)
        }
        return nil
    }

    /// Takes a cost from the owner's next turns, or gives it back where it is negative; the credit never exceeds a quantum. An owner with
    /// nothing in line owes nothing: nobody waited because of it.
    public mutating func charge(_ cost: Int, to owner: Owner) {
        guard let line = lines[owner] else { return }
        lines[owner]?.credit = min(quantum, max(-64 * quantum, line.credit - cost))
    }

    private mutating func passTurn() {
        turns.append(turns.removeFirst())
    }
}
