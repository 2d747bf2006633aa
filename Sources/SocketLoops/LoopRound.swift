import NIOCore

/// The round that a loop is in: a new one begins each time it has waited for its sockets. Used on the loop alone.
public final class LoopRound {
    public private(set) var number: UInt64 = 0
    public private(set) var began = NIODeadline.uptimeNanoseconds(0)

    public init() {}

    public func begin(at now: NIODeadline) {
        number &+= 1
        began = now
    }
}
