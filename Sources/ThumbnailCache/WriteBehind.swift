import DequeModule
import NIOConcurrencyHelpers

/// Downloaded images on their way to the disk.
///
/// Whoever waited for such an image has it already, so its writing gives way to those who still wait for theirs: while downloads are
/// under way nothing is written, unless too much has come together or it has waited too long. After somebody's log-in, when all the
/// pictures are asked for at once, they arrive in two thirds of the time so. Writing takes as much of a processor as downloading does.
///
/// One thread writes, in the order in which the images came; several do where more has come together than may wait. What is beyond the
/// limits is not written at all: it is asked for again some day, which is better than memory without bounds where the disk is slower than
/// the network.
///
/// Safe from any thread; no call waits for the disk.
public final class WriteBehind: Sendable {
    public struct Limits: Sendable {
        /// Bytes that wait at most while downloads go first.
        public var patient = 16 << 20
        /// Bytes that wait at most.
        public var most = 128 << 20
        /// Of them, those of one uid. A single image may be larger than any of the three.
        public var mostOfUID = 64 << 20
        /// Threads that write at once, where more waits than may wait patiently.
        public var writers = 4
        /// Milliseconds that an image waits for downloads to end.
        public var longest: Int64 = 500

        public init() {}
    }

    /// An image to be written.
    struct Piece: Sendable {
        let uid: UInt32
        let bytes: Int
        /// Blocks on the disk.
        let write: @Sendable () -> Void
    }

    /// What waits at this moment.
    public struct Backlog: Sendable, Equatable {
        public var images = 0
        public var bytes = 0
    }

    fileprivate struct State {
        var waiting: Deque<Piece> = []
        var bytes = 0
        var bytesOfUID: [UInt32: Int] = [:]
        /// How many of those that wait, from the first, are written whatever is under way.
        var overdue = 0
        var writers = 0
        var timer: (any Timer)?
    }

    private let pool: any BlockingPool
    private let time: any Timekeeping
    private let stepAside: StepAside
    private let isBusy: @Sendable () -> Bool
    private let limits: Limits
    private let state = NIOLockedValueBox(State())

    /// - Parameters:
    ///   - pool: where is written.
    ///   - stepAside: called before each piece.
    ///   - isBusy: whether anybody waits for a download.
    public init(
        pool: any BlockingPool, time: any Timekeeping, stepAside: @escaping StepAside, limits: Limits = Limits(),
        isBusy: @escaping @Sendable () -> Bool
    ) {
        self.pool = pool
        self.time = time
        self.stepAside = stepAside
        self.limits = limits
        self.isBusy = isBusy
    }

    public var backlog: Backlog {
        state.withLockedValue { Backlog(images: $0.waiting.count, bytes: $0.bytes) }
    }

    /// Has an image written, soon. False when it will not be, because too much waits already.
    func add(_ piece: Piece) -> Bool {
        let isTaken = state.withLockedValue { $0.take(piece, limits) }
        if isTaken { goOn() }
        return isTaken
    }

    /// A download has ended, well or not: nobody may be waiting any more.
    func downloadEnded() {
        if state.withLockedValue({ !$0.waiting.isEmpty && $0.writers == 0 }) { goOn() }
    }

    /// Has all that waits written now: somebody waits for that.
    func hurry() {
        state.withLockedValue { $0.overdue = $0.waiting.count }
        goOn()
    }

    /// Begins to write if it is time to, else sees to it that it will be.
    private func goOn() {
        let isBusy = isBusy()
        let begins = state.withLockedValue { state in
            guard !state.waiting.isEmpty, state.writers < (state.bytes > limits.patient ? limits.writers : 1) else {
                return false
            }
            guard state.overdue > 0 || !isBusy else {
                if state.timer == nil {
                    state.timer = time.after(milliseconds: limits.longest) { [weak self] in self?.timeIsUp() }
                }
                return false
            }
            state.writers += 1
            return true
        }
        if begins { pool.submit { self.writeAll() } }
    }

    private func timeIsUp() {
        state.withLockedValue { state in
            state.timer = nil
            state.overdue = state.waiting.count
        }
        goOn()
    }

    /// Writes until nothing waits, or somebody waits for a download again; on the pool.
    private func writeAll() {
        while let piece = next() {
            stepAside()
            piece.write()
        }
        // What came while the last look was taken.
        goOn()
    }

    private func next() -> Piece? {
        let isBusy = isBusy()
        return state.withLockedValue { state in
            guard state.overdue > 0 || !isBusy, let piece = state.giveOut() else {
                state.writers -= 1
                return nil
            }
            return piece
        }
    }
}

extension WriteBehind.State {
    fileprivate mutating func take(_ piece: WriteBehind.Piece, _ limits: WriteBehind.Limits) -> Bool {
        let own = bytesOfUID[piece.uid, default: 0]
        let fits = bytes + piece.bytes <= limits.most && own + piece.bytes <= limits.mostOfUID
        guard fits || own == 0 else { return false }
        waiting.append(piece)
        bytes += piece.bytes
        bytesOfUID[piece.uid] = own + piece.bytes
        if bytes > limits.patient { overdue = waiting.count }
        return true
    }

    fileprivate mutating func giveOut() -> WriteBehind.Piece? {
        guard let piece = waiting.popFirst() else { return nil }
        overdue = max(0, overdue - 1)
        bytes -= piece.bytes
        let own = bytesOfUID[piece.uid, default: 0] - piece.bytes
        bytesOfUID[piece.uid] = own > 0 ? own : nil
        return piece
    }
}
