import NIOConcurrencyHelpers

/// The memory that the daemon keeps for its clients, limited for each account and in total (I8).
///
/// Requests, replies, users, sessions and negative entries reserve their bytes here, or are refused; no caller waits.
/// When the total is used up, an account may still use its equal share, so that early accounts do not exclude later
/// ones. Twenty accounts that fill it one after another can therefore exceed the total by two and a half times.
public final class MemoryBudget: Sendable {
    public struct Limits: Sendable, Equatable {
        /// Bytes.
        public var perAccount: Int
        public var total: Int

        public init(perAccount: Int = 64 << 20, total: Int = 256 << 20) {
            self.perAccount = perAccount
            self.total = total
        }
    }

    private struct State {
        /// Bytes by account; accounts with none are removed.
        var held: [UInt32: Int] = [:]
        var total = 0

        mutating func change(_ account: UInt32, by count: Int) {
            let bytes = held[account, default: 0] + count
            held[account] = bytes == 0 ? nil : bytes
            total += count
        }

        func fits(_ count: Int, of account: UInt32, _ limits: Limits) -> Bool {
            let own = held[account] ?? 0
            guard own + count <= limits.perAccount else { return false }
            let accounts = held.count + (own == 0 ? 1 : 0)
            return total + count <= limits.total || own + count <= limits.total / accounts
        }
    }

    private let state = NIOLockedValueBox(State())
    private let limits: @Sendable () -> Limits
    private let accountOf: @Sendable (UInt32) -> UInt32

    /// - Parameter accountOf: the account that a uid counts towards.
    public init(
        limits: @escaping @Sendable () -> Limits = { Limits() },
        accountOf: @escaping @Sendable (UInt32) -> UInt32 = { $0 }
    ) {
        self.limits = limits
        self.accountOf = accountOf
    }

    /// The account that a uid counts towards in quotas and fair scheduling.
    public func account(of uid: UInt32) -> UInt32 { accountOf(uid) }

    public func lease(for uid: UInt32) -> MemoryLease {
        MemoryLease(self, account: accountOf(uid))
    }

    /// Bytes reserved by the account of a uid.
    public func bytes(of uid: UInt32) -> Int {
        let account = accountOf(uid)
        return state.withLockedValue { $0.held[account] ?? 0 }
    }

    public var bytes: Int { state.withLockedValue { $0.total } }

    /// - Parameter uid: nil for the sum over all accounts.
    public func metric(of uid: UInt32?) -> Metric {
        Metric(
            "held_bytes", .gauge, unit: "bytes",
            "Memory kept for clients: requests, replies, users and sessions (limits.memory).",
            uid.map { bytes(of: $0) } ?? bytes, .everyone)
    }

    fileprivate func fits(_ count: Int, _ account: UInt32) -> Bool {
        let limits = limits()
        return state.withLockedValue { $0.fits(count, of: account, limits) }
    }

    /// Returns false and changes nothing if `mustFit` is true and there is no room.
    fileprivate func change(_ account: UInt32, by count: Int, mustFit: Bool) -> Bool {
        if count == 0 { return true }
        let limits = mustFit ? limits() : nil
        return state.withLockedValue { state in
            if let limits, !state.fits(count, of: account, limits) { return false }
            state.change(account, by: count)
            return true
        }
    }

    fileprivate func refusal(_ account: UInt32) -> String {
        let limits = limits()
        let (own, total) = state.withLockedValue { ($0.held[account] ?? 0, $0.total) }
        let remedy = "end requests or sessions, or retry later"
        return own < limits.perAccount && total >= limits.total
            ? "limits.memory (\(limits.total) bytes): all accounts use \(total), account \(account) \(own); \(remedy)"
            : "limits.memory-per-uid (\(limits.perAccount) bytes): account \(account) uses \(own); \(remedy)"
    }
}

/// The bytes reserved for one object; released when the lease is. Safe from any thread.
public final class MemoryLease: Sendable {
    private let budget: MemoryBudget
    private let account: UInt32
    private let held = NIOLockedValueBox(0)

    fileprivate init(_ budget: MemoryBudget, account: UInt32) {
        self.budget = budget
        self.account = account
    }

    deinit { set(to: 0) }

    public var bytes: Int { held.withLockedValue { $0 } }

    /// Reserves more bytes. Returns false and reserves nothing if there is no room.
    public func reserve(_ count: Int) -> Bool { change(mustFit: true) { $0 + count } }

    public func release(_ count: Int) { _ = change(mustFit: false) { $0 - count } }

    /// Changes the reservation. Returns false and changes nothing if it would grow and there is no room.
    public func change(to bytes: Int) -> Bool { change(mustFit: true) { _ in bytes } }

    /// Changes the reservation even without room: for memory that is in use already or must not be refused.
    public func set(to bytes: Int) { _ = change(mustFit: false) { _ in bytes } }

    private func change(mustFit: Bool, to bytes: (Int) -> Int) -> Bool {
        held.withLockedValue { held in
            let more = bytes(held) - held
            guard budget.change(account, by: more, mustFit: mustFit && more > 0) else { return false }
            held += more
            return true
        }
    }

    public func hasRoom(for count: Int) -> Bool { budget.fits(count, account) }

    /// The reason for a refusal, for an error message.
    public var refusal: String { budget.refusal(account) }
}
