/// How many of something there are, and whose: transfers under way, or names that are looked up.
///
/// The last eighth of the room is for uids that have none. So a uid whose transfers hang, and that has taken all it can
/// get, holds up no other (F68), unless as many others have come as there is room for.
struct UIDCounts {
    private(set) var total = 0
    private var perUID: [UInt32: Int] = [:]

    func count(of uid: UInt32) -> Int { perUID[uid, default: 0] }

    /// Whether the uid may have another, where there may be so many.
    func hasRoom(for uid: UInt32, of limit: Int) -> Bool {
        let free = limit - total
        return free > limit / 8 || free > 0 && perUID[uid] == nil
    }

    mutating func add(_ uid: UInt32) {
        total += 1
        perUID[uid, default: 0] += 1
    }

    mutating func remove(_ uid: UInt32) {
        total -= 1
        let rest = perUID[uid, default: 1] - 1
        perUID[uid] = rest == 0 ? nil : rest
    }
}
