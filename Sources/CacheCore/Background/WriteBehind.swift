import NIOConcurrencyHelpers

/// Downloaded images on their way to the disk.
///
/// Whoever waited for such an image has it already, so its writing gives way to those who still wait for theirs: while
/// downloads are under way nothing is written, unless too much has come together or something has waited too long.
/// After somebody's log-in, when all the pictures are asked for at once, they arrive in two thirds of the time so.
/// Writing takes as much of a processor as downloading does.
///
/// One thread writes, and the uids take turns. What is beyond the limits is not written at all: it is asked for again
/// some day, which is better than memory without bounds where the disk is slower than the network.
///
/// Safe from any thread; no call waits for the disk.
public final class WriteBehind: Sendable {
    public struct Limits: Sendable {
        /// Bytes that wait at most while downloads go first.
        public var idle: Int
        /// Bytes that wait at most, of one uid and of all, as ``MemoryBudget`` shares them out. One image always may.
        public var bytes = MemoryBudget.Limits(perUID: 64 << 20, total: 128 << 20)
        /// Milliseconds that an image waits for downloads to end.
        public var longest: Int64 = 500

        /// - Parameter tier: bytes of the memory tier. So many wait for downloads, since those that are in memory
        ///   anyway take no more of it; 8 MiB where there is no tier, 64 MiB at most.
        public init(tier: Int) {
            idle = min(max(tier, 8 << 20), 64 << 20)
        }
    }

    /// An image to be written.
    private struct Piece: Sendable {
        /// What it takes of the budget; given back with it.
        let lease: MemoryLease
        let bytes: Int
        /// Blocks on the disk.
        let write: @Sendable () -> Void
    }

    private struct State {
        var waiting = FairQueue<UInt32, Piece>(quantum: 64 << 10)
        var bytes = 0
        /// How many of those that wait, from the next, are written whatever is under way.
        var overdue = 0
        /// Whether that is all of them, from now on.
        var isHurried = false
        var isWriting = false
        /// When what waits is overdue.
        var timer: (any Timer)?
    }

    /// Bytes that a piece takes beside the image: what is known of it, where it belongs, and the work itself.
    static let overhead = 2 << 10

    private let writer: any BlockingPool
    private let time: any Timekeeping
    private let yield: YieldToOthers
    private let isBusy: @Sendable () -> Bool
    private let limits: Limits
    private let budget: MemoryBudget
    private let state = NIOLockedValueBox(State())

    /// - Parameters:
    ///   - writer: where is written: one thread, which does nothing else.
    ///   - yield: called before each piece.
    ///   - isBusy: whether downloads are under way. That the last ended is told by ``downloadEnded()``, or waited out.
    public init(
        writer: any BlockingPool, time: any Timekeeping, yield: @escaping YieldToOthers, limits: Limits,
        isBusy: @escaping @Sendable () -> Bool
    ) {
        self.writer = writer
        self.time = time
        self.yield = yield
        self.limits = limits
        self.isBusy = isBusy
        self.budget = MemoryBudget(limits: { limits.bytes })
    }

    /// What waits at this moment, in bytes of memory.
    public var backlog: Usage { state.withLockedValue { Usage(images: $0.waiting.count, bytes: $0.bytes) } }

    /// Has an image written, soon. False when it will not be, because too much waits already.
    /// - Parameters:
    ///   - bytes: of memory.
    ///   - write: blocks on the disk.
    func add(uid: UInt32, bytes: Int, _ write: @escaping @Sendable () -> Void) -> Bool {
        let bytes = bytes + Self.overhead
        let lease = budget.lease(for: uid)
        let isTaken = state.withLockedValue { state in
            if !lease.take(bytes) {
                guard state.waiting.isEmpty else { return false }
                lease.set(to: bytes)
            }
            state.waiting.append(Piece(lease: lease, bytes: bytes, write: write), of: uid, cost: bytes)
            state.bytes += bytes
            if state.bytes > limits.idle || state.isHurried { state.overdue = state.waiting.count }
            return true
        }
        if isTaken { goOn() }
        return isTaken
    }

    /// A download has ended, well or not: it may have been the last.
    func downloadEnded() {
        if state.withLockedValue({ !$0.waiting.isEmpty && !$0.isWriting }) { goOn() }
    }

    /// Has all that waits written now, and at once what is still to come; returns when nothing waits. For a stop, which
    /// has the time for it.
    func finish() async {
        while hurry() {
            timeIsUp()
            // One thread writes: as a rule that is behind what waits.
            await writer.value(for: Self.everybody) {}
        }
    }

    /// Whether there is something to write.
    private func hurry() -> Bool {
        state.withLockedValue { state in
            state.isHurried = true
            return !state.waiting.isEmpty || state.isWriting
        }
    }

    /// Whose turn the writing is: the uids take theirs in the line of what is to be written.
    private static var everybody: UInt32 { 0 }

    /// Begins to write if it is time to, and sees to it that it will be.
    private func goOn() {
        let isBusy = isBusy()
        let begins = state.withLockedValue { state in
            guard !state.waiting.isEmpty, !state.isWriting else { return false }
            if state.overdue > 0 || !isBusy {
                state.isWriting = true
            } else if state.timer == nil {
                state.timer = time.after(milliseconds: limits.longest) { [weak self] in self?.timeIsUp() }
            }
            return state.isWriting
        }
        if begins { writer.submit(for: Self.everybody) { self.writeAll() } }
    }

    private func timeIsUp() {
        state.withLockedValue { state in
            state.timer = nil
            state.overdue = state.waiting.count
        }
        goOn()
    }

    /// Writes until nothing waits, or a download is under way again; on the writer's thread.
    private func writeAll() {
        while let piece = next() {
            yield()
            piece.write()
        }
        // What came while the last look was taken; and what is left is to be written some time.
        goOn()
    }

    private func next() -> Piece? {
        let isBusy = isBusy()
        let (piece, timer) = state.withLockedValue { state -> (Piece?, (any Timer)?) in
            guard state.overdue > 0 || !isBusy, let piece = state.waiting.popFirst()?.element else {
                state.isWriting = false
                return (nil, nil)
            }
            state.overdue = max(0, state.overdue - 1)
            state.bytes -= piece.bytes
            // What is to wait then waits for a time of its own.
            return (piece, state.waiting.isEmpty ? state.timer.take() : nil)
        }
        timer?.cancel()
        return piece
    }
}
