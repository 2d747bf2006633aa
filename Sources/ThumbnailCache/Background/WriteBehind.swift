import NIOConcurrencyHelpers

/// Downloaded images on their way to the disk.
///
/// Whoever waited for such an image has it already, so its writing gives way to those who still wait for theirs: while downloads are
/// under way nothing is written, unless too much has come together or something has waited too long. After somebody's log-in, when all the
/// pictures are asked for at once, they arrive in two thirds of the time so. Writing takes as much of a processor as downloading does.
///
/// One thread writes, and the uids take turns. What is beyond the limits is not written at all: it is asked for again some day, which is
/// better than memory without bounds where the disk is slower than the network.
///
/// Safe from any thread; no call waits for the disk.
public final class WriteBehind: Sendable {
    public struct Limits: Sendable {
        /// Bytes that wait at most while downloads go first.
        public var patient: Int
        /// Bytes that wait at most, as long as no uid has less than its part of them: then twice as many. One image always may, however
        /// large.
        public var most = 128 << 20
        /// Of them, those of one uid.
        public var mostOfUID = 64 << 20
        /// Milliseconds that an image waits for downloads to end.
        public var longest: Int64 = 500

        /// - Parameter tier: bytes of the memory tier. So many wait patiently, since those that are in memory anyway take no more of it;
        ///   8 MiB where there is no tier, 64 MiB at most.
        public init(tier: Int) {
            patient = min(max(tier, 8 << 20), 64 << 20)
        }
    }

    /// An image to be written.
    struct Piece: Sendable {
        /// Bytes that a piece takes beside the image: what is known of it, where it belongs, and the work itself.
        static let overhead = 2 << 10

        let uid: UInt32
        /// Of memory.
        let bytes: Int
        /// Blocks on the disk.
        let write: @Sendable () -> Void

        init(uid: UInt32, bytes: Int, write: @escaping @Sendable () -> Void) {
            self.uid = uid
            self.bytes = bytes + Self.overhead
            self.write = write
        }
    }

    /// What waits at this moment.
    public struct Backlog: Sendable, Equatable {
        public var images = 0
        /// Of memory.
        public var bytes = 0
    }

    fileprivate struct State {
        var waiting = FairQueue<UInt32, Piece>(quantum: 64 << 10)
        var bytes = 0
        var bytesOfUID: [UInt32: Int] = [:]
        /// How many of those that wait, from the next, are written whatever is under way.
        var overdue = 0
        /// Whether that is all of them, from now on.
        var isHurried = false
        var isWriting = false
        /// Grows whenever nothing is left to wait: a timer that was set before is about nothing any more.
        var round: UInt64 = 0
        var hasTimer = false
    }

    private let writer: any BlockingPool
    private let time: any Timekeeping
    private let yield: YieldToOthers
    private let isBusy: @Sendable () -> Bool
    private let limits: Limits
    private let state = NIOLockedValueBox(State())

    /// - Parameters:
    ///   - writer: where is written: one thread, which does nothing else.
    ///   - yield: called before each piece.
    ///   - isBusy: whether downloads are under way. That the last has ended need not be told (``downloadEnded()``): it only takes
    ///     until the longest wait is over then.
    public init(
        writer: any BlockingPool, time: any Timekeeping, yield: @escaping YieldToOthers, limits: Limits,
        isBusy: @escaping @Sendable () -> Bool
    ) {
        self.writer = writer
        self.time = time
        self.yield = yield
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

    /// A download has ended, well or not: it may have been the last.
    func downloadEnded() {
        if state.withLockedValue({ !$0.waiting.isEmpty && !$0.isWriting }) { goOn() }
    }

    /// Has all that waits written now, and all that is still to come: the daemon stops, and waits for it.
    func hurry() {
        state.withLockedValue { state in
            state.isHurried = true
            state.overdue = state.waiting.count
        }
        goOn()
    }

    fileprivate enum Step {
        case write
        case setTimer(round: UInt64)
        case nothing
    }

    /// Whose turn the writing is: the uids take theirs in the line of what is to be written.
    private static var everybody: UInt32 { 0 }

    /// Begins to write if it is time to, and sees to it that it will be.
    private func goOn() {
        let isBusy = isBusy()
        switch state.withLockedValue({ $0.step(isBusy: isBusy, limits) }) {
        case .write:
            writer.submit(for: Self.everybody) { self.writeAll() }
        case .setTimer(let round):
            _ = time.after(milliseconds: limits.longest) { [weak self] in self?.timeIsUp(round) }
        case .nothing:
            break
        }
    }

    private func timeIsUp(_ round: UInt64) {
        state.withLockedValue { state in
            guard state.round == round else { return }
            state.hasTimer = false
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
        return state.withLockedValue { state in
            guard state.overdue > 0 || !isBusy, let piece = state.giveOut() else {
                state.isWriting = false
                return nil
            }
            return piece
        }
    }
}

extension WriteBehind.State {
    fileprivate mutating func take(_ piece: WriteBehind.Piece, _ limits: WriteBehind.Limits) -> Bool {
        let own = bytesOfUID[piece.uid, default: 0] + piece.bytes
        let all = bytes + piece.bytes
        // Who has less than an equal part gets it where others have more.
        let part = limits.most / max(1, bytesOfUID.count + (bytesOfUID[piece.uid] == nil ? 1 : 0))
        let fits = own <= limits.mostOfUID && (all <= limits.most || own <= part && all <= 2 * limits.most)
        guard fits || waiting.isEmpty else { return false }
        waiting.append(piece, of: piece.uid, cost: piece.bytes)
        bytes = all
        bytesOfUID[piece.uid] = own
        if bytes > limits.patient || isHurried { overdue = waiting.count }
        return true
    }

    fileprivate mutating func giveOut() -> WriteBehind.Piece? {
        guard let piece = waiting.popFirst()?.element else { return nil }
        overdue = max(0, overdue - 1)
        bytes -= piece.bytes
        let own = bytesOfUID[piece.uid, default: 0] - piece.bytes
        bytesOfUID[piece.uid] = own > 0 ? own : nil
        if waiting.isEmpty {
            round += 1
            hasTimer = false
        }
        return piece
    }

    fileprivate mutating func step(isBusy: Bool, _ limits: WriteBehind.Limits) -> WriteBehind.Step {
        guard !waiting.isEmpty else { return .nothing }
        if isWriting { return .nothing }
        if overdue > 0 || !isBusy {
            isWriting = true
            return .write
        }
        if hasTimer { return .nothing }
        hasTimer = true
        return .setTimer(round: round)
    }
}
