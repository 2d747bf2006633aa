import NIOCore
import SocketLoops

/// Something that an event loop does at a time, which changes often and mostly to a later one: the loop's timer stays
/// then, and looks again when it is due. Used on the loop alone.
final class LoopTimer {
    private let loop: NIOIsolatedEventLoop
    private let work: () -> Void
    /// When the work is to be done; nil: never.
    private(set) var deadline: NIODeadline?
    private var timer: (deadline: NIODeadline, task: Scheduled<Void>)?

    init(_ loop: SocketLoop, _ work: @escaping () -> Void) { (self.loop, self.work) = (loop.assumeIsolated(), work) }

    func set(_ deadline: NIODeadline?) {
        self.deadline = deadline
        guard let deadline, deadline < timer?.deadline ?? .distantFuture else { return }
        timer?.task.cancel()
        timer = (deadline, loop.scheduleTask(deadline: deadline) { [weak self] in self?.look() })
    }

    private func look() {
        timer = nil
        guard let deadline, deadline <= .now() else { return set(deadline) }
        self.deadline = nil
        work()
    }
}
