/// The ids (`jti`) of the tokens of an issuer that were taken, each for as long as its token would be taken again.
///
/// A value without a clock. It has a limit, and never makes room: an id that was forgotten too early is a token that
/// can be played again.
struct ReplayMemory: Sendable {
    enum Verdict: Equatable, Sendable {
        /// Nobody else has it until it is kept or given back.
        case taken
        /// A request with the same token is under way.
        case busy
        case seen
        /// A token that cannot be told from those whose ids are forgotten: the clock was set back.
        case tooOld
        case full
    }

    private enum State { case taken, seen }

    private let limit: Int
    private var states: [String: State] = [:]
    /// Ids by the second behind which they are of no use.
    private var ends: [Int64: Set<String>] = [:]
    /// Of what was forgotten the latest second: what ends no later is refused, whatever the clock says by now.
    private var forgotten = Int64.min
    private var swept: Int64?

    init(limit: Int) { self.limit = limit }

    var count: Int { states.count }

    /// - Parameters:
    ///   - end: the last second in which the token is taken.
    ///   - now: seconds since 1970.
    mutating func take(_ id: String, until end: Int64, at now: Int64) -> Verdict {
        forget(before: now)
        switch states[id] {
        case .taken: return .busy
        case .seen: return .seen
        case nil: break
        }
        guard end > forgotten else { return .tooOld }
        guard states.count < limit else { return .full }
        states[id] = .taken
        ends[end, default: []].insert(id)
        return .taken
    }

    /// The token was acted upon.
    mutating func keep(_ id: String) { if states[id] != nil { states[id] = .seen } }

    /// It was not: it may be sent again.
    mutating func giveBack(_ id: String, until end: Int64) {
        guard states[id] == .taken else { return }
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
