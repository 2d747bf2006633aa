import CacheCore
import NIOConcurrencyHelpers

/// A watch whose changes a test reports.
public final class FakePendingLogoutWatch: PendingLogoutWatch {
    private struct State {
        var isPossible = true
        var isEnded = false
        var renewals = 0
        var changed: (@Sendable () -> Void)?
    }

    private let state = NIOLockedValueBox(State())

    public init() {}

    /// Whether changes are reported.
    public var isPossible: Bool {
        get { state.withLockedValue { $0.isPossible } }
        set { state.withLockedValue { $0.isPossible = newValue } }
    }

    public var isEnded: Bool { state.withLockedValue { $0.isEnded } }

    /// Calls of ``renew(_:)``.
    public var renewals: Int { state.withLockedValue { $0.renewals } }

    /// Reports that the directory has changed.
    public func report() { state.withLockedValue { $0.changed }?() }

    public func renew(_ changed: @escaping @Sendable () -> Void) -> Bool {
        state.withLockedValue { state in
            state.renewals += 1
            state.changed = state.isPossible ? changed : nil
            return state.isPossible
        }
    }

    public func end() { state.withLockedValue { ($0.isEnded, $0.changed) = (true, nil) } }
}

/// Pending-logout files in memory, and the names of processed ones. Both survive a restart.
public final class FakePendingLogoutFiles: PendingLogoutFiles {
    public enum Step: Sendable {
        case pending, remove
    }

    private struct State {
        var present: [PendingLogoutFile] = []
        var processed: Set<PendingLogoutFile> = []
        var gates: [Step: Gate] = [:]
        var failures: [Step: Int] = [:]
        var listings = 0
    }

    private let state = NIOLockedValueBox(State())

    public init() {}

    /// Adds a file, as a logout hook does.
    public func add(_ uid: UInt32, _ name: String = "file") {
        state.withLockedValue { $0.present.append(PendingLogoutFile(uid: uid, name: name)) }
    }

    /// Names of the files that were processed and removed, sorted.
    public var processed: [String] { state.withLockedValue { $0.processed.map(\.name).sorted() } }

    /// The number of listings.
    public var listings: Int { state.withLockedValue { $0.listings } }

    /// Makes the next calls of a step fail.
    public func fail(_ step: Step, times: Int = 1) {
        state.withLockedValue { $0.failures[step] = times }
    }

    /// Holds calls at a step until the gate is opened.
    public func hold(_ step: Step) -> Gate {
        let gate = Gate()
        state.withLockedValue { $0.gates[step] = gate }
        return gate
    }

    public func pending() throws -> [PendingLogoutFile] {
        let found = state.withLockedValue { state in
            state.listings += 1
            return state.present
        }
        try pass(.pending)
        return found
    }

    public func remove(_ processed: [PendingLogoutFile]) throws {
        try pass(.remove)
        state.withLockedValue { state in
            state.present.removeAll { processed.contains($0) }
            state.processed.formUnion(processed)
        }
    }

    private func pass(_ step: Step) throws {
        state.withLockedValue { $0.gates[step] }?.pass()
        let fails = state.withLockedValue { state in
            guard let times = state.failures[step], times > 0 else { return false }
            state.failures[step] = times - 1
            return true
        }
        if fails { throw StoreError.failed("EIO") }
    }
}
