import NIOCore

/// The round that a loop is in: a new one begins each time it has waited for its sockets. Used on the loop alone.
public final class LoopRound {
    public private(set) var number: UInt64 = 0
    public private(set) var began = NIODeadline.uptimeNanoseconds(0)
    private var lapBegan = NIODeadline.uptimeNanoseconds(0)

    public init() {}

    public func begin(at now: NIODeadline) {
        number &+= 1
        began = now
        lapBegan = now
    }

    /// The loop goes on with something else, from `now` on.
    func beginLap(at now: NIODeadline) { lapBegan = now }

    /// How long the loop has worked since it was last asked that, or went on with something else. Costs a look at the clock.
    public func lap() -> TimeAmount {
        let now = NIODeadline.now()
        defer { lapBegan = now }
        return now - lapBegan
    }
}
