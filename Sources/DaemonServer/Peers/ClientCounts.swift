import NIOCore

/// What connections have asked for, and what came of it.
struct ClientCounts: Sendable, Equatable {
    var commands = 0
    /// Images that were served from what was held, in memory or on disk.
    var hits = 0
    /// Requests for images that were answered otherwise: by an origin, with none, or with an error.
    var misses = 0

    static func += (sum: inout ClientCounts, more: ClientCounts) {
        sum.commands += more.commands
        sum.hits += more.hits
        sum.misses += more.misses
    }
}

/// How fast a count grows, as far as somebody looks at it: between this look and the last one that is a second older.
///
/// Nobody looks in between, so that what is counted pays nothing for it.
struct CommandRate: Sendable {
    private typealias Look = (count: Int, time: NIODeadline)
    private static var shortest: TimeAmount { .seconds(1) }
    private var before: Look
    private var last: Look

    /// - Parameter start: when the count was 0.
    init(since start: NIODeadline) {
        before = (0, start)
        last = before
    }

    /// Per second, to the nearest whole number.
    mutating func look(at count: Int, _ now: NIODeadline) -> Int {
        if now - last.time >= Self.shortest {
            before = last
            last = (count, now)
        }
        let nanoseconds = max((now - before.time).nanoseconds, Self.shortest.nanoseconds)
        return Int((Double(count - before.count) * 1e9 / Double(nanoseconds)).rounded())
    }
}
