import NIOConcurrencyHelpers

/// The bytes that the daemon keeps because of what its clients do, for each account and for all together (I8).
///
/// Requests, replies, users, sessions, missing images: whatever is kept for a client takes its bytes here, or is
/// refused. Nobody waits. When all together have no room left, an account still has its equal share, so that those who
/// came first do not shut the others out. For that the total can be exceeded, the less the more accounts there are:
/// twenty that fill it one after another come to two and a half times the total.
public final class MemoryBudget: Sendable {
    public struct Limits: Sendable, Equatable {
        /// Bytes.
        public var perUID: Int
        public var total: Int

        public init(perUID: Int = 64 << 20, total: Int = 256 << 20) {
            self.perUID = perUID
            self.total = total
        }
    }

    private struct State {
        /// By account; those who have something.
        var held: [UInt32: Int] = [:]
        var total = 0

        mutating func change(_ account: UInt32, by count: Int) {
            let bytes = held[account, default: 0] + count
            held[account] = bytes == 0 ? nil : bytes
            total += count
        }

        /// Whether there is room for so many bytes more.
        func fits(_ count: Int, of account: UInt32, _ limits: Limits) -> Bool {
            let own = held[account] ?? 0
            guard own + count <= limits.perUID else { return false }
            let accounts = held.count + (own == 0 ? 1 : 0)
            return total + count <= limits.total || own + count <= limits.total / accounts
        }
    }

    private let state = NIOLockedValueBox(State())
    private let limits: @Sendable () -> Limits
    private let accountOf: @Sendable (UInt32) -> UInt32

    /// - Parameters:
    ///   - limits: looked at anew each time, since a reload may change them.
    ///   - accountOf: the account that a uid counts for.
    public init(
        limits: @escaping @Sendable () -> Limits = { Limits() },
        accountOf: @escaping @Sendable (UInt32) -> UInt32 = { $0 }
    ) {
        self.limits = limits
        self.accountOf = accountOf
    }

    /// The account that a uid counts for, wherever something is shared out.
    public func account(of uid: UInt32) -> UInt32 { accountOf(uid) }

    /// For one thing that is kept because of a uid. It takes nothing yet.
    public func lease(for uid: UInt32) -> MemoryLease {
        MemoryLease(self, account: accountOf(uid))
    }

    /// Bytes that count for the account of a uid.
    public func bytes(of uid: UInt32) -> Int {
        let account = accountOf(uid)
        return state.withLockedValue { $0.held[account] ?? 0 }
    }

    /// Bytes that count for all.
    public var bytes: Int { state.withLockedValue { $0.total } }

    fileprivate func fits(_ count: Int, _ account: UInt32) -> Bool {
        let limits = limits()
        return state.withLockedValue { $0.fits(count, of: account, limits) }
    }

    /// False, and nothing is changed, if there must be room and there is none.
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
        let what = "requests, replies, users and sessions of uid \(account) take \(own) bytes"
        return own < limits.perUID && total >= limits.total
            ? "\(what), and those of all take \(total) (limit memory, \(limits.total)): end some, or try again"
            : "\(what) (limit memory-per-uid, \(limits.perUID)): end some, or try again"
    }
}

/// The bytes that one thing counts for; they are given back with it. Used by one at a time, on any thread.
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

    /// Takes so many bytes more; false, and nothing is taken, if there is no room.
    public func take(_ count: Int) -> Bool { change(mustFit: true) { $0 + count } }

    public func give(_ count: Int) { _ = change(mustFit: false) { $0 - count } }

    /// Brings what counts to so many bytes; false, and nothing is changed, if that is more and there is no room.
    public func change(to bytes: Int) -> Bool { change(mustFit: true) { _ in bytes } }

    /// Brings what counts to so many bytes, room or not: for what is there already, or is never refused.
    public func set(to bytes: Int) { _ = change(mustFit: false) { _ in bytes } }

    private func change(mustFit: Bool, to bytes: (Int) -> Int) -> Bool {
        held.withLockedValue { held in
            let more = bytes(held) - held
            guard budget.change(account, by: more, mustFit: mustFit && more > 0) else { return false }
            held += more
            return true
        }
    }

    /// Whether there is room for so many bytes more.
    public func hasRoom(for count: Int) -> Bool { budget.fits(count, account) }

    /// Why there is none.
    public var refusal: String { budget.refusal(account) }
}
