import LinuxSupport
import NIOConcurrencyHelpers

/// Writes downloaded images to disk after their waiters have been answered.
///
/// While downloads are in flight, nothing is written unless too many bytes wait or an image has waited too long:
/// writing takes as much processor time as downloading. Deferring writes shortens fetching all images after a login by
/// a third.
///
/// One thread writes while downloads are in flight, and ``Limits/writers`` threads otherwise. Accounts take turns. An
/// image beyond the limits is not written, and is lost when the memory tier evicts it: the queue must not grow when the
/// disk is slower than the network. Safe from any thread; never waits for the disk.
public final class WriteBehind: Sendable {
    public struct Limits: Sendable {
        /// Bytes that may wait while downloads are in flight.
        public var idle: Int
        /// Bytes that may wait, of one account and in all (``MemoryBudget``). A single image always may.
        public var bytes = MemoryBudget.Limits(perAccount: 64 << 20, total: 128 << 20)
        /// Milliseconds that an image waits for downloads to end.
        public var longest: Int64 = 500
        /// Images that are written at once while no download is in flight.
        public var writers = 1

        /// - Parameter tier: bytes of the memory tier. As many may wait, from 8 to 64 MiB. This usually costs no
        ///   additional memory, since the tier has the same buffers.
        public init(tier: Int) {
            idle = min(max(tier, 8 << 20), 64 << 20)
        }
    }

    private struct Piece: Sendable {
        let lease: MemoryLease
        let bytes: Int
        let write: @Sendable () -> Void
    }

    private struct State {
        var waiting = DeficitRoundRobin<UInt32, Piece>(quantum: 64 << 10)
        var bytes = 0
        /// The number of next images that are written even while downloads are in flight.
        var overdue = 0
        var isHurried = false
        /// Pieces of work in the writer's pool, each of which writes one image after another.
        var writing = 0
        /// Resumed when nothing is being written.
        var finishing: [CheckedContinuation<Void, Never>] = []
        /// Fires when the waiting images become overdue.
        var timer: (any Timer)?
    }

    /// Bytes that a waiting image takes besides its own: its record, its key and the closure.
    static let overhead = 2 << 10

    private let writer: any BlockingPool
    private let time: any Timekeeping
    private let yield: YieldToOthers
    private let isBusy: @Sendable () -> Bool
    private let limits: Limits
    private let budget: MemoryBudget
    private let state = NIOLockedValueBox(State())

    /// - Parameters:
    ///   - writer: ``Limits/writers`` threads, which do nothing else. They call `yield` before each image.
    ///   - isBusy: whether downloads are in flight. ``downloadEnded()`` reports the end of each.
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

    public var backlog: Usage { state.withLockedValue { Usage(images: $0.waiting.count, bytes: $0.bytes) } }

    public var metrics: [Metric] {
        let backlog = backlog
        return [
            Metric(
                "unwritten_images", .gauge, unit: "images", "Downloaded images in the write queue.", backlog.images),
            Metric("unwritten_bytes", .gauge, unit: "bytes", "Size of the images in the write queue.", backlog.bytes),
        ]
    }

    /// Enqueues an image of `bytes` bytes of memory. Returns false if too many bytes wait; then it is not written.
    /// - Parameter write: may block on the disk.
    func add(account: UInt32, bytes: Int, _ write: @escaping @Sendable () -> Void) -> Bool {
        let bytes = bytes + Self.overhead
        let lease = budget.lease(for: account)
        let isAccepted = state.withLockedValue { state in
            if !lease.reserve(bytes) {
                guard state.waiting.isEmpty else { return false }
                lease.set(to: bytes)
            }
            state.waiting.append(Piece(lease: lease, bytes: bytes, write: write), of: account, cost: bytes)
            state.bytes += bytes
            if state.bytes > limits.idle || state.isHurried { state.overdue = state.waiting.count }
            return true
        }
        if isAccepted { proceed() }
        return isAccepted
    }

    /// Reports the end of a download, which may have been the last.
    func downloadEnded() {
        if state.withLockedValue({ !$0.waiting.isEmpty && $0.writing < limits.writers }) { proceed() }
    }

    /// For a stop: writes all waiting images, and every new one at once. Returns when none waits.
    func finish() async {
        while hurry() {
            timeIsUp()
            await writesEnded()
        }
    }

    private func writesEnded() async {
        await withCheckedContinuation { continuation in
            let haveEnded = state.withLockedValue { state in
                if state.writing > 0 { state.finishing.append(continuation) }
                return state.writing == 0
            }
            if haveEnded { continuation.resume() }
        }
    }

    /// Returns whether any image waits or is being written.
    private func hurry() -> Bool {
        state.withLockedValue { state in
            state.isHurried = true
            return !state.waiting.isEmpty || state.writing > 0
        }
    }

    /// The uid that is charged in the writer's pool; the queue here already schedules between accounts.
    private static var writerUID: UInt32 { 0 }

    /// Starts writing if an image is due; otherwise makes sure that the timer runs.
    private func proceed() {
        let isBusy = isBusy()
        let begun = state.withLockedValue { state in
            guard state.overdue > 0 || !isBusy else {
                if !state.waiting.isEmpty, state.writing == 0, state.timer == nil {
                    state.timer = time.after(milliseconds: limits.longest) { [weak self] in self?.timeIsUp() }
                }
                return 0
            }
            let begun = max(0, min(writers(isBusy: isBusy) - state.writing, state.waiting.count))
            state.writing += begun
            return begun
        }
        for _ in 0..<begun { writer.submit(for: Self.writerUID) { self.writeAll() } }
    }

    private func writers(isBusy: Bool) -> Int { isBusy ? 1 : limits.writers }

    private func timeIsUp() {
        state.withLockedValue { state in
            state.timer = nil
            state.overdue = state.waiting.count
        }
        proceed()
    }

    /// Writes until no image waits or a download is in flight again. Runs on the writer's thread.
    private func writeAll() {
        while let piece = next() {
            yield()
            piece.write()
        }
        // An image may have come after the last check, and the remaining images need the timer.
        proceed()
    }

    private func next() -> Piece? {
        let isBusy = isBusy()
        var finished: [CheckedContinuation<Void, Never>] = []
        let (piece, timer) = state.withLockedValue { state -> (Piece?, (any Timer)?) in
            guard state.overdue > 0 || !isBusy, state.writing <= writers(isBusy: isBusy),
                let piece = state.waiting.popFirst()?.element
            else {
                state.writing -= 1
                if state.writing == 0 { swap(&finished, &state.finishing) }
                return (nil, nil)
            }
            state.overdue = max(0, state.overdue - 1)
            state.bytes -= piece.bytes
            // The timer starts again with the next image.
            return (piece, state.waiting.isEmpty ? state.timer.take() : nil)
        }
        timer?.cancel()
        for continuation in finished { continuation.resume() }
        return piece
    }
}
