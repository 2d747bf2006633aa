import NIOConcurrencyHelpers

/// Events in order, recorded by all fakes that share the log.
public final class EventLog: Sendable {
    private let entries = NIOLockedValueBox<[String]>([])
    private let isRecording: Bool

    public init(isRecording: Bool = true) { self.isRecording = isRecording }

    public var events: [String] { entries.withLockedValue { $0 } }

    public func record(_ event: @autoclosure () -> String) {
        guard isRecording else { return }
        let event = event()
        entries.withLockedValue { $0.append(event) }
    }

    /// Returns and removes the recorded events.
    public func removeAll() -> [String] {
        entries.withLockedValue { entries in
            defer { entries = [] }
            return entries
        }
    }
}
