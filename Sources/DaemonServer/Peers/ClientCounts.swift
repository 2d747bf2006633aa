import NIOCore

struct ClientCounts: Sendable, Equatable {
    var commands = 0
    /// Images served from memory or disk.
    var hits = 0
    /// Requests for images with another result: an image of the origin, none, or an error.
    var misses = 0

    static func += (sum: inout ClientCounts, more: ClientCounts) {
        sum.commands += more.commands
        sum.hits += more.hits
        sum.misses += more.misses
    }
}

/// The rate of a counter between two reads that are at least a second apart. Counting costs nothing.
struct CommandRate: Sendable {
    private typealias Reading = (count: Int, time: NIODeadline)
    private static var minimumInterval: TimeAmount { .seconds(1) }
    private var before: Reading
    private var last: Reading

    /// - Parameter start: the time when the count was 0.
    init(since start: NIODeadline) {
        before = (0, start)
        last = before
    }

    /// Per second, rounded.
    mutating func update(_ count: Int, _ now: NIODeadline) -> Int {
        if now - last.time >= Self.minimumInterval {
            before = last
            last = (count, now)
        }
        let nanoseconds = max((now - before.time).nanoseconds, Self.minimumInterval.nanoseconds)
        return Int((Double(count - before.count) * 1e9 / Double(nanoseconds)).rounded())
    }
}
