import DequeModule

/// Work of many owners, taken out by turns: deficit round robin (Shreedhar and Varghese, 1996).
///
/// Each owner has a line of its own. At its turn an owner has a quantum to spend on what stands first in its line. What
/// is too expensive for one quantum waits until the owner has saved enough for it. An owner with a thousand pieces in
/// line is served no sooner than one with a single piece (I8).
///
/// A cost can be told afterwards, too: ``charge(_:to:)`` takes what a piece really cost from the owner's next turns.
///
/// A value without effects, whose functions are compiled where they are used: to look up their types would take longer
/// than all that they do. To take a piece out costs three looks at every owner that has something in line, at most,
/// however long their lines are and whatever they owe.
public struct FairQueue<Owner: Hashable, Element> {
    @usableFromInline struct Line {
        @usableFromInline var waiting: Deque<(element: Element, cost: Int)> = []
        /// What the owner may still spend; below zero when a piece cost more than was thought.
        @usableFromInline var credit = 0

        @usableFromInline init() {}
    }

    @usableFromInline let quantum: Int
    /// Of those who have something in line.
    @usableFromInline var lines: [Owner: Line] = [:]
    /// The owners with something in line, the one whose turn it is first.
    @usableFromInline var turns: Deque<Owner> = []
    /// Pieces in all lines.
    @inlinable public var count: Int { pieces }
    @usableFromInline var pieces = 0

    @inlinable public var isEmpty: Bool { count == 0 }
    /// Owners with something in line.
    @inlinable public var owners: Int { turns.count }

    /// - Parameter quantum: what an owner may spend at each turn, in the unit of the costs; 1 or more.
    @inlinable public init(quantum: Int) {
        self.quantum = max(1, quantum)
    }

    /// How many pieces of an owner are in line.
    @inlinable public func count(of owner: Owner) -> Int { lines[owner]?.waiting.count ?? 0 }

    /// Puts a piece at the end of its owner's line.
    /// - Parameter cost: from 0 to 64 quanta; what is more counts as 64.
    @inlinable public mutating func append(_ element: Element, of owner: Owner, cost: Int) {
        if lines[owner] == nil { turns.append(owner) }
        lines[owner, default: Line()].waiting.append((element, min(max(0, cost), 64 * quantum)))
        pieces += 1
    }

    /// Takes the next piece out; nil when there is none, or only of owners that may have none.
    /// - Parameter mayHave: asked for each owner whose turn it is. One that may not keeps its place, and saves nothing.
    @inlinable
    public mutating func popFirst(mayHave: (Owner) -> Bool = { _ in true }) -> (owner: Owner, element: Element)? {
        if turns.count == 1, let owner = turns.first {
            // There is nobody to be fair to.
            guard mayHave(owner) else { return nil }
            let idle = turnsToSave(owner)
            lines[owner]?.credit += idle * quantum
            return pay(owner).map { (owner, $0) }
        }
        if let next = goRound(mayHave) { return next }
        // Nobody could pay. Turns in which nobody can are taken all at once.
        var idle = Int.max
        let owners = turns.filter(mayHave)
        for owner in owners { idle = min(idle, turnsToSave(owner)) }
        for owner in owners { lines[owner]?.credit += idle * quantum }
        return goRound(mayHave)
    }

    /// A turn for each owner, up to the first that can pay for what stands first in its line.
    @inlinable mutating func goRound(_ mayHave: (Owner) -> Bool) -> (owner: Owner, element: Element)? {
        for _ in 0..<turns.count {
            guard let owner = turns.first else { return nil }
            if mayHave(owner) {
                if turnsToSave(owner) == 0, let element = pay(owner) { return (owner, element) }
                lines[owner]?.credit += quantum
            }
            turns.append(turns.removeFirst())
        }
        return nil
    }

    /// Turns in which the owner can only save for what stands first in its line.
    @inlinable func turnsToSave(_ owner: Owner) -> Int {
        guard let line = lines[owner], let first = line.waiting.first else { return 0 }
        return max(0, (first.cost - line.credit + quantum - 1) / quantum)
    }

    /// Takes out what stands first in the line of the owner whose turn it is.
    @inlinable mutating func pay(_ owner: Owner) -> Element? {
        // Where it lies: a line may be thousands long.
        guard let first = lines[owner]?.waiting.popFirst() else { return nil }
        pieces -= 1
        lines[owner]?.credit -= first.cost
        if lines[owner]?.waiting.isEmpty == true {
            lines[owner] = nil
            turns.removeFirst()
        }
        return first.element
    }

    /// Takes a cost from the owner's next turns, or gives it back where it is negative; the credit never exceeds a
    /// quantum. An owner with nothing in line owes nothing: nobody waited because of it.
    @inlinable public mutating func charge(_ cost: Int, to owner: Owner) {
        guard let line = lines[owner] else { return }
        lines[owner]?.credit = min(quantum, max(-64 * quantum, line.credit - cost))
    }
}

extension FairQueue: Sendable where Owner: Sendable, Element: Sendable {}
extension FairQueue.Line: Sendable where Owner: Sendable, Element: Sendable {}
