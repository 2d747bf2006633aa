import DequeModule

/// A queue that divides a resource between accounts by deficit round robin (Shreedhar and Varghese, 1996).
///
/// Each account has a line of its own: first come, first served. Accounts take turns. At its turn an account receives a
/// quantum, and is served while its credit covers the cost of the first element in its line. An account with a thousand
/// elements is therefore served no sooner than an account with one (I8).
///
/// A cost that is known only afterwards is charged by ``charge(_:to:)``. An account whose credit is negative has a
/// deficit, which is deducted from its next turns. A deficit remains while other accounts wait, even if the account's
/// line is empty.
///
/// A value without effects. ``popFirst(where:)`` examines each account at most three times, whatever the length of the
/// lines and the size of the deficits; the other functions take constant time. All of them are inlinable, because
/// unspecialized generic code would cost more than the queue itself.
public struct DeficitRoundRobin<Account: Hashable, Element> {
    @usableFromInline struct Line {
        @usableFromInline var waiting: Deque<(element: Element, cost: Int)> = []
        /// What the account may still spend; a deficit if negative.
        @usableFromInline var credit = 0

        @usableFromInline init() {}

        @inlinable var isFinished: Bool { waiting.isEmpty && credit >= 0 }
    }

    /// The highest cost of an element, and the largest deficit, in quanta.
    @inlinable public static var maximumDebt: Int { 64 }

    @usableFromInline let quantum: Int
    /// The lines of all accounts in `ring`.
    @usableFromInline var lines: [Account: Line] = [:]
    /// The accounts that wait or have a deficit, in the order of their turns.
    @usableFromInline var ring: Deque<Account> = []
    @usableFromInline var elements = 0

    @inlinable public var count: Int { elements }
    @inlinable public var isEmpty: Bool { count == 0 }
    /// The number of accounts that wait or have a deficit.
    @inlinable public var accounts: Int { ring.count }

    /// - Parameter quantum: what an account receives at each turn, in the unit of the costs; at least 1.
    @inlinable public init(quantum: Int) {
        self.quantum = max(1, quantum)
    }

    @inlinable public func count(of account: Account) -> Int { lines[account]?.waiting.count ?? 0 }

    /// Appends an element to the account's line.
    /// - Parameter cost: at least 0; limited to ``maximumDebt`` quanta.
    @inlinable public mutating func append(_ element: Element, of account: Account, cost: Int) {
        if let line = lines[account] {
            // An account saves no credit while it has nothing to spend it on.
            if line.waiting.isEmpty { lines[account]?.credit = min(0, line.credit) }
        } else {
            ring.append(account)
        }
        lines[account, default: Line()].waiting.append((element, min(max(0, cost), Self.maximumDebt * quantum)))
        elements += 1
    }

    /// Removes and returns the next element; nil if no account that may be served waits.
    /// - Parameter mayServe: whether an account may be served now. Otherwise it keeps its place and receives nothing.
    @inlinable public mutating func popFirst(
        where mayServe: (Account) -> Bool = { _ in true }
    ) -> (account: Account, element: Element)? {
        guard let next = nextTurn(mayServe) else { return nil }
        if next.rounds > 0 {
            // Rounds in which no account can pay are skipped at once.
            for account in ring where mayServe(account) { lines[account]?.credit += next.rounds * quantum }
        }
        for _ in 0..<next.position {
            let account = ring.removeFirst()
            if mayServe(account) { lines[account]?.credit += quantum }
            if lines[account]?.isFinished == true { lines[account] = nil } else { ring.append(account) }
        }
        guard let account = ring.first, let (element, cost) = lines[account]?.waiting.popFirst() else { return nil }
        lines[account]?.credit -= cost
        elements -= 1
        if isEmpty {
            // Deficits matter only while another account waits.
            lines.removeAll(keepingCapacity: true)
            ring.removeAll(keepingCapacity: true)
        }
        return (account, element)
    }

    /// The position in the ring of the account that is served next, and the number of full rounds before its turn.
    @inlinable func nextTurn(_ mayServe: (Account) -> Bool) -> (position: Int, rounds: Int)? {
        var next: (position: Int, rounds: Int)?
        for (position, account) in ring.enumerated() {
            guard let line = lines[account], let first = line.waiting.first, mayServe(account) else { continue }
            let rounds = max(0, (first.cost - line.credit + quantum - 1) / quantum)
            if rounds < next?.rounds ?? .max { next = (position, rounds) }
            if rounds == 0 { break }
        }
        return next
    }

    /// Deducts a cost from the account's credit, or returns it if negative; the credit never exceeds a quantum. Has no
    /// effect if the account has neither elements nor a deficit and no other account waits.
    @inlinable public mutating func charge(_ cost: Int, to account: Account) {
        guard let line = lines[account] else { return }
        lines[account]?.credit = min(quantum, max(-Self.maximumDebt * quantum, line.credit - cost))
    }
}

extension DeficitRoundRobin: Sendable where Account: Sendable, Element: Sendable {}
extension DeficitRoundRobin.Line: Sendable where Account: Sendable, Element: Sendable {}
