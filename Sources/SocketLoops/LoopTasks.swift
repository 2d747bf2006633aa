import DequeModule
import HeapModule
import NIOCore

/// The tasks and timers of a loop. A value without a clock of its own.
struct LoopTasks {
    typealias Work = @Sendable () -> Void

    /// A due task. A timer can still be cancelled by its number.
    enum Item {
        case work(Work)
        case timer(UInt64)
    }

    /// A timer's task, called with false if the loop ends before it is due.
    typealias Timer = @Sendable (_ isDue: Bool) -> Void

    private struct Date: Comparable {
        let deadline: NIODeadline
        /// Orders timers with equal deadlines by their creation.
        let number: UInt64

        static func < (one: Date, other: Date) -> Bool {
            (one.deadline, one.number) < (other.deadline, other.number)
        }
    }

    private var due: Deque<Item> = []
    private var timers: [UInt64: Timer] = [:]
    /// The deadlines of all timers, and of some cancelled ones.
    private var dates: Heap<Date> = []
    private var lastNumber: UInt64 = 0

    mutating func add(_ work: @escaping Work) { due.append(.work(work)) }

    /// - Returns: a number for ``cancel(_:)``.
    mutating func add(_ timer: @escaping Timer, at deadline: NIODeadline) -> UInt64 {
        lastNumber += 1
        timers[lastNumber] = timer
        dates.insert(Date(deadline: deadline, number: lastNumber))
        return lastNumber
    }

    /// Cancels a timer. Has no effect if it ran already.
    mutating func cancel(_ number: UInt64) {
        timers[number] = nil
        // Dates of cancelled timers stay in the heap until they are more than half of it.
        guard dates.count > 2 * timers.count + 64 else { return }
        dates = Heap(dates.unordered.filter { timers[$0.number] != nil })
    }

    /// The number of entries, including cancelled ones.
    var size: Int { due.count + dates.count }

    /// The time until the next task: zero if one is due, nil without tasks and timers.
    func pause(from now: NIODeadline) -> TimeAmount? {
        if !due.isEmpty { return .zero }
        return dates.min.map { max($0.deadline - now, .zero) }
    }

    mutating func removeDue(at now: NIODeadline) -> Deque<Item> {
        while let next = dates.min, next.deadline <= now {
            dates.removeMin()
            if timers[next.number] != nil { due.append(.timer(next.number)) }
        }
        defer { due = [] }
        return due
    }

    /// Returns the work of a due task, or nil for a timer that was cancelled.
    mutating func work(of item: Item) -> Work? {
        switch item {
        case .work(let work): return work
        case .timer(let number):
            guard let timer = timers.removeValue(forKey: number) else { return nil }
            return { timer(true) }
        }
    }

    mutating func prepend(_ rest: Deque<Item>) { due = rest + due }

    mutating func removeTimers() -> [Timer] {
        defer {
            timers = [:]
            dates = []
        }
        return Array(timers.values)
    }
}
