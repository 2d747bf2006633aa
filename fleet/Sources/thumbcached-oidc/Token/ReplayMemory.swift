/// The ids (`jti`) of used tokens, each kept while its token is valid.
///
/// At its limit it rejects new ids rather than evict one: a token whose id is evicted early could be replayed.
struct ReplayMemory: Sendable {
    enum Verdict: Equatable, Sendable {
        /// Reserved for the caller until confirmed or released.
        case reserved
        /// Another request has reserved the id.
        case busy
        case seen
        /// The token ends no later than a removed id: the clock was set back.
        case tooOld
        case full
    }

    private enum State { case reserved, seen }

    private let limit: Int
    private var states: [String: State] = [:]
    /// Ids by the last second in which their tokens are valid.
    private var ends: [Int64: Set<String>] = [:]
    /// The latest end of a removed id; tokens that end no later are rejected.
    private var forgotten = Int64.min
    private var swept: Int64?

    init(limit: Int) { self.limit = limit }

    var count: Int { states.count }

    /// - Parameters:
    ///   - end: the last second in which the token is valid.
    ///   - now: seconds since 1970.
    mutating func reserve(_ id: String, until end: Int64, at now: Int64) -> Verdict {
        forget(before: now)
        switch states[id] {
        case .reserved: return .busy
        case .seen: return .seen
        case nil: break
        }
        guard end > forgotten else { return .tooOld }
        guard states.count < limit else { return .full }
        states[id] = .reserved
        ends[end, default: []].insert(id)
        return .reserved
    }

    /// Marks a reserved id as used.
    mutating func confirm(_ id: String) { if states[id] != nil { states[id] = .seen } }

    /// Releases a reserved id, so that the token can be sent again.
    mutating func release(_ id: String, until end: Int64) {
        guard states[id] == .reserved else { return }
        states[id] = nil
        ends[end]?.remove(id)
        if ends[end]?.isEmpty == true { ends[end] = nil }
    }

    private mutating func forget(before now: Int64) {
        guard now != swept else { return }
        swept = now
        for (end, ids) in ends where end < now {
            for id in ids { states[id] = nil }
            ends[end] = nil
            forgotten = max(forgotten, end)
        }
    }
}
