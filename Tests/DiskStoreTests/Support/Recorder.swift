import DiskStore
import NIOConcurrencyHelpers

/// Remembers system calls in their order.
final class Recorder: Sendable {
    private let noted = NIOLockedValueBox<[SystemCall]>([])

    var calls: [SystemCall] { noted.withLockedValue { $0 } }

    func note(_ call: SystemCall) {
        noted.withLockedValue { $0.append(call) }
    }
}
