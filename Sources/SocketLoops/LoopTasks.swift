import DequeModule
import HeapModule
import NIOCore

/// What a loop has to do: at once, in the order in which it was told, or later, by the clock. A value, which knows no
/// clock itself.
struct LoopTasks {
    typealias Work = @Sendable () -> Void

    /// What is due: work, or the timer of a number, which may be cancelled yet.
    enum Item {
        case work(Work)
        case timer(UInt64)
    }

    /// What is to be done later; `false` when the loop ends before it is due.
    typealias Timer = @Sendable (_ isDue: Bool) -> Void

    private struct Date: Comparable {
        let deadline: NIODeadline
        /// Of two for the same moment the one that was set first comes first.
        let number: UInt64

        static func < (one: Date, other: Date) -> Bool {
            (one.deadline, one.number) < (other.deadline, other.number)
        }
    }

    private var due: Deque<Item> = []
    private var timers: [UInt64: Timer] = [:]
    /// Of all timers, and of some that were cancelled.
    private var dates: Heap<Date> = []
    private var lastNumber: UInt64 = 0

    mutating func add(_ work: @escaping Work) { due.append(.work(work)) }

    /// - Returns: a number to cancel it by.
    mutating func add(_ timer: @escaping Timer, at deadline: NIODeadline) -> UInt64 {
        lastNumber += 1
        timers[lastNumber] = timer
        dates.insert(Date(deadline: deadline, number: lastNumber))
        return lastNumber
    }

    /// Forgets a timer. Nothing happens if it is not there any more.
    mutating func cancel(_ number: UInt64) {
        timers[number] = nil
        // The dates of those that were cancelled stay until they have come, but never make up more than half, and a
        // few.
        guard dates.count > 2 * timers.count + 64 else { return }
        dates = Heap(dates.unordered.filter { timers[$0.number] != nil })
    }

    /// What it holds, also of what was cancelled.
    var size: Int { due.count + dates.count }

    /// How long there is nothing to do: zero if there is something, nil if there will be nothing by itself.
    func pause(from now: NIODeadline) -> TimeAmount? {
        if !due.isEmpty { return .zero }
        return dates.min.map { max($0.deadline - now, .zero) }
    }

    /// Takes all that is due, the timers behind the rest.
    mutating func takeDue(at now: NIODeadline) -> Deque<Item> {
        while let next = dates.min, next.deadline <= now {
            dates.removeMin()
            if timers[next.number] != nil { due.append(.timer(next.number)) }
        }
        defer { due = [] }
        return due
    }

    /// What is to be done now for something that was due; nil for a timer that was cancelled since.
    mutating func work(of item: Item) -> Work? {
        switch item {
        case .work(let work): return work
        case .timer(let number):
            guard let timer = timers.removeValue(forKey: number) else { return nil }
            return { timer(true) }
        }
    }

    /// Gives back what there was no time for. It comes first next time.
    mutating func giveBack(_ rest: Deque<Item>) { due = rest + due }

    /// Takes all timers, due or not.
    mutating func takeTimers() -> [Timer] {
        defer {
            timers = [:]
            dates = []
        }
        return Array(timers.values)
    }
}
