import Testing

@testable import DaemonServer

/// What of a connection's memory counts, and what it has to take (I8).
@Suite struct HeldMemoryTests {
    private static let share = HeldMemory.share
    private static let ahead = HeldMemory.readAtOnce
    private static let large = 5 << 20

    private static let beyond: [(held: HeldMemory, now: Int, whole: Int)] = [
        (HeldMemory(), 0, 0),
        (HeldMemory(input: share), 0, 1),
        (HeldMemory(input: share / 2, other: share / 2), 0, 1),
        (HeldMemory(input: share, other: 10), 10, 11),
        (HeldMemory(input: 1_000, missing: large, other: 10), 0, large + 1_010 - share),
        (HeldMemory(input: large, missing: 1), large - share, large + 1 - share),
    ]

    @Test(arguments: beyond)
    func `I8: what is beyond the free share counts`(_ held: HeldMemory, now: Int, whole: Int) {
        #expect(held.counted == now)
        #expect(held.countedWhole == whole)
    }

    private static let replies: [(held: HeldMemory, bytes: Int, taken: Int)] = [
        (HeldMemory(), share, 0),
        (HeldMemory(), share + 1, 1),
        (HeldMemory(input: 5, other: share - 10), 5, 0),
        (HeldMemory(input: 5, other: share - 10), 6, 1),
        (HeldMemory(other: share, charged: 100), 100, 0),
        (HeldMemory(other: share, charged: 100), 150, 50),
    ]

    @Test(arguments: replies)
    func `I8: a reply takes what it needs beyond the free share`(_ held: HeldMemory, bytes: Int, taken: Int) {
        #expect(held.toTake(forReply: bytes) == taken)
    }

    private static let frames: [(held: HeldMemory, isFree: Bool, taken: Int)] = [
        // Idle, in a small frame, or in one that fits to the last byte.
        (HeldMemory(), true, 0),
        (HeldMemory(input: 100, missing: share - 100, isInsideFrame: true), true, ahead),
        (HeldMemory(input: share / 2, missing: share / 4, isInsideFrame: true, other: share / 4), true, ahead),
        // One byte more does not, nor does a list that goes on.
        (HeldMemory(input: 100, missing: share - 99, isInsideFrame: true), false, ahead + 1),
        (HeldMemory(input: share, isInsideFrame: true), false, ahead),
        // A LOGOUT does, whatever is not read.
        (
            HeldMemory(input: 40, missing: 512, isInsideFrame: true, other: large, charged: large - share), true,
            ahead + 552
        ),
        (
            HeldMemory(input: 40, missing: 9_000, isInsideFrame: true, other: large, charged: large - share), false,
            ahead + 9_040
        ),
        // What was taken for an argument lasts to its end.
        (HeldMemory(input: 100, missing: large, isInsideFrame: true, charged: large), true, 0),
        (HeldMemory(input: large, missing: 100, isInsideFrame: true, charged: large + 100 - share), true, ahead),
    ]

    @Test(arguments: frames)
    func `I8, F53: a frame that fits is read without asking, and a longer one takes room for all of an argument`(
        _ held: HeldMemory, isFree: Bool, taken: Int
    ) {
        #expect(held.isReadFreely == isFree)
        #expect(held.toTakeForReading == taken)
        // And when it has been taken, it is read.
        var after = held
        after.charged += taken
        #expect(after.isReadFreely && after.toTakeForReading == 0)
    }

    private static let kept: [(held: HeldMemory, settled: Int)] = [
        (HeldMemory(charged: 100), 0),
        (HeldMemory(other: large), large - share),
        (HeldMemory(input: 100, other: large, charged: large), large + 100 - share),
        // Inside a frame what was taken for the rest of it stays, and no more.
        (HeldMemory(input: large, isInsideFrame: true), large - share),
        (HeldMemory(input: 100, missing: large, isInsideFrame: true, charged: large - 200_000), large - 200_000),
        (HeldMemory(input: 100, missing: large, isInsideFrame: true, charged: 2 * large), large + 100 + ahead - share),
        (HeldMemory(input: 100, isInsideFrame: true, charged: large), 0),
    ]

    @Test(arguments: kept)
    func `I8: what counts follows what is held`(_ held: HeldMemory, settled: Int) {
        #expect(held.settled == settled)
    }

    private static let long: [(held: HeldMemory, isLong: Bool)] = [
        (HeldMemory(input: share + 1, isInsideFrame: true), true),
        (HeldMemory(input: share, isInsideFrame: true), false),
        (HeldMemory(input: 10, isInsideFrame: true, other: large), false),
        (HeldMemory(input: large), false),
    ]

    @Test(arguments: long)
    func `I8: only who is inside a frame that is long by itself comes before others`(_ held: HeldMemory, isLong: Bool) {
        #expect(held.isInsideLongFrame == isLong)
    }
}
