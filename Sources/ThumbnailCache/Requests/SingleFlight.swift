import DequeModule

// Single-flight: whoever asks for what is already on its way waits for that, and all are answered in the order they
// came by one result (I6). This file holds the two small values it is made of; `SlotActivity.swift` says how the
// flights of one slot follow from each other.

/// Somebody who waits for an image.
struct Waiter: Sendable {
    let id: WaiterID
    let query: ImageQuery
    let resolve: @Sendable (GetOutcome) -> Void
}

/// One piece of work that several wait for. The number tells it from an older or newer one for the same key: an
/// outcome is taken only from the flight that is current, so an old one can never end or replace a newer (I6).
struct Flight: Sendable {
    var number: UInt64
    private(set) var waiters: Deque<Waiter> = []
    /// To stop it; nil until it has started, and for a read, which is not stopped but ignored.
    var handle: (any DownloadHandle)?
    /// A stale image to fall back on should the origin fail, and for a waiter whose time is up.
    var held: ServedImage?
    /// The image that the origin is asked to confirm or to replace; nil where it is asked for one whatever is held. Its bytes are kept
    /// here, so that a 304 finds them though they were evicted meanwhile.
    var basis: Image?
    /// Whether the slot held nothing, or what this download would replace, when it began and holds nothing newer since:
    /// then the origin's word that there is none empties the slot. That some other URL has no image says nothing of
    /// the image held.
    var ownsSlot = false
    /// Names the grace that began when the last waiter left.
    var grace: UInt64?
    /// Started to refresh what was already served: nobody needs to wait for it.
    var isBackground = false

    init(number: UInt64) {
        self.number = number
    }

    mutating func join(_ waiter: Waiter) {
        waiters.append(waiter)
    }

    /// Takes one waiter out; nil when it is not here.
    mutating func remove(_ id: WaiterID) -> Waiter? {
        waiters.firstIndex { $0.id == id }.map { waiters.remove(at: $0) }
    }

    /// Takes all waiters out, in the order they came.
    mutating func finish() -> Deque<Waiter> {
        defer { waiters = [] }
        return waiters
    }

    var isAbandoned: Bool { waiters.isEmpty && !isBackground }
}
