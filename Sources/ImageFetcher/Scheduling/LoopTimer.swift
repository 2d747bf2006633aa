import NIOCore
import SocketLoops

/// A timer of an event loop whose deadline changes often, mostly to a later time.
///
/// A later deadline does not replace the loop's timer, which is set again when it fires. Used on the loop only.
final class LoopTimer {
    private let loop: NIOIsolatedEventLoop
    private let work: () -> Void
    private(set) var deadline: NIODeadline?
    private var timer: (deadline: NIODeadline, task: Scheduled<Void>)?

    init(_ loop: SocketLoop, _ work: @escaping () -> Void) { (self.loop, self.work) = (loop.assumeIsolated(), work) }

    func set(_ deadline: NIODeadline?) {
        self.deadline = deadline
        guard let deadline, deadline < timer?.deadline ?? .distantFuture else { return }
        timer?.task.cancel()
        timer = (deadline, loop.scheduleTask(deadline: deadline) { [weak self] in self?.fire() })
    }

    private func fire() {
        timer = nil
        guard let deadline, deadline <= .now() else { return set(deadline) }
        self.deadline = nil
        work()
    }
}
