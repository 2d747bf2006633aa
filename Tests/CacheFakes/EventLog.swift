import NIOConcurrencyHelpers

/// What happened, in the order it happened, across the fakes that share it: so that a test can say that keys were wiped
/// before the log-out was committed.
public final class EventLog: Sendable {
    private let entries = NIOLockedValueBox<[String]>([])

    public init() {}

    public var events: [String] { entries.withLockedValue { $0 } }

    public func record(_ event: String) {
        entries.withLockedValue { $0.append(event) }
    }

    /// Takes out what was recorded so far.
    public func take() -> [String] {
        entries.withLockedValue { entries in
            defer { entries = [] }
            return entries
        }
    }
}
