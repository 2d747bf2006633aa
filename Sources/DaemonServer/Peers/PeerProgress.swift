/// How far a peer had come at one moment, by which a later one tells whether it has stalled.
struct PeerProgress: Equatable {
    /// Bytes it has taken.
    var sent: Int
    /// Bytes it has yet to take.
    var unread: Int
    /// Frames it has completed.
    var frames: Int
    /// Whether it owes the rest of a frame.
    var isInsideFrame: Bool

    /// Whether anything is expected of it.
    var isAwaited: Bool { unread > 0 || isInsideFrame }

    /// Whether what was expected of it then is expected still, and it has done nothing about it.
    func hasStalled(since earlier: PeerProgress) -> Bool {
        let readsNothing = earlier.unread > 0 && unread > 0 && sent == earlier.sent
        let finishesNothing = earlier.isInsideFrame && isInsideFrame && frames == earlier.frames
        return readsNothing || finishesNothing
    }
}
