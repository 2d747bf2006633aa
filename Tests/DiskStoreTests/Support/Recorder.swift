import DiskStore
import NIOConcurrencyHelpers

/// Records system calls in order.
final class Recorder: Sendable {
    private let recorded = NIOLockedValueBox<[SystemCall]>([])

    var calls: [SystemCall] { recorded.withLockedValue { $0 } }

    func note(_ call: SystemCall) {
        recorded.withLockedValue { $0.append(call) }
    }
}
