/// How many transfers are under way, and whose: of all, or from one origin.
///
/// The last eighth of the room is for uids that have none under way. So a uid whose transfers hang, and that has taken
/// all it can get, holds up no other (F68); nobody waits for somebody else's transfer to end, unless as many others
/// have come as there is room for.
struct ActiveTransfers {
    private(set) var count = 0
    private var perUID: [UInt32: Int] = [:]

    func count(of uid: UInt32) -> Int { perUID[uid, default: 0] }

    /// Whether the uid may begin another, where there may be so many.
    func hasRoom(for uid: UInt32, of limit: Int) -> Bool {
        let free = limit - count
        return free > limit / 8 || free > 0 && perUID[uid] == nil
    }

    mutating func begin(of uid: UInt32) {
        count += 1
        perUID[uid, default: 0] += 1
    }

    mutating func end(of uid: UInt32) {
        count -= 1
        let rest = perUID[uid, default: 1] - 1
        perUID[uid] = rest == 0 ? nil : rest
    }
}
