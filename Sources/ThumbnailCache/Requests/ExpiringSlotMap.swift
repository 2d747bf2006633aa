/// What is known of slots and the URLs asked for them, remembered for a while: in bounded number, and in bytes that count for an account.
///
/// A value. Names and URLs are not kept but hashes of them, 128 bits together, by a key that each start of the program chooses anew: an
/// entry takes ``bytesOfOne``, however long its names are, and two that are taken for each other are not to be met with. What is looked for
/// and what is forgotten is found by its profile, and the oldest goes first where there is no room, so that nothing here costs more the
/// more is remembered.
struct ExpiringSlotMap<Value: Sendable>: Sendable {
    private struct Node: Sendable {
        let profile: UInt64
        let place: UInt64
        /// Seconds since 1970, after which nobody wants it.
        let until: Int64
        var value: Value
        let size: UInt16
        /// The one remembered before it, and the one after.
        var older = Self.none
        var newer = Self.none
        /// The one remembered before it of the same profile; of one that is free, the next that is.
        var next = Self.none

        static var none: Int32 { -1 }
    }

    private var nodes: [Node] = []
    private var free = Node.none
    /// The newest of each profile.
    private var heads: [UInt64: Int32] = [:]
    private var oldest = Node.none
    private var newest = Node.none
    private(set) var count = 0
    private let limit: Int
    private let memory: MemoryLease

    /// Bytes that an entry counts for: a node of 64 and a place in the table of profiles of 16, both twice where these have just grown.
    static var bytesOfOne: Int { 160 }
    /// As many sizes and URLs of one profile are remembered: they are looked through one by one.
    private static var mostOfProfile: Int { 16 }

    /// - Parameters:
    ///   - limit: how many are remembered at most.
    ///   - memory: what they count against.
    init(limit: Int, memory: MemoryLease) {
        // Nodes are numbered in 31 bits.
        self.limit = min(limit, Int(Int32.max))
        self.memory = memory
    }

    /// What was remembered of that place last and not forgotten since, maybe longer than anybody wants it.
    subscript(slot: Slot, url: String) -> Value? {
        guard count > 0 else { return nil }
        return find(Self.hash(slot.profile), Self.hash(slot.size, url)).map { nodes[$0].value }
    }

    /// Whether that is so of any of a slot, under whatever URL.
    func contains(_ slot: Slot, where isWanted: (Value) -> Bool) -> Bool {
        guard count > 0 else { return false }
        return indices(of: Self.hash(slot.profile)).contains {
            nodes[$0].size == slot.size && isWanted(nodes[$0].value)
        }
    }

    /// Remembers it, unless there is no room and nothing older that could go for it.
    mutating func remember(_ slot: Slot, url: String, _ value: Value, until: Int64, now: Int64) {
        guard until > now, limit > 0 else { return }
        while let index = index(oldest), nodes[index].until <= now { remove(index) }
        let (profile, place) = (Self.hash(slot.profile), Self.hash(slot.size, url))
        let known = indices(of: profile)
        if let index = find(profile, place) {
            remove(index)
        } else if known.count >= Self.mostOfProfile, let last = known.last {
            remove(last)
        }
        while let index = index(oldest), count >= limit { remove(index) }
        add(Node(profile: profile, place: place, until: until, value: value, size: slot.size))
        shrink()
    }

    /// Changes all that is known of a profile, each of which is handed with its size.
    mutating func change(_ profile: OpaqueID, _ body: (UInt16, inout Value) -> Void) {
        guard count > 0 else { return }
        for index in indices(of: Self.hash(profile)) { body(nodes[index].size, &nodes[index].value) }
    }

    mutating func forget(_ slot: Slot) {
        guard count > 0 else { return }
        for index in indices(of: Self.hash(slot.profile)) where nodes[index].size == slot.size { remove(index) }
        shrink()
    }

    mutating func forget(profile: OpaqueID) {
        guard count > 0 else { return }
        for index in indices(of: Self.hash(profile)) { remove(index) }
        shrink()
    }

    mutating func forgetAll() {
        self = ExpiringSlotMap(limit: limit, memory: memory)
        memory.settle(at: 0)
    }

    // MARK: Nodes

    private static func hash(_ profile: OpaqueID) -> UInt64 {
        var hasher = Hasher()
        hasher.combine(profile)
        return UInt64(bitPattern: Int64(hasher.finalize()))
    }

    private static func hash(_ size: UInt16, _ url: String) -> UInt64 {
        var hasher = Hasher()
        hasher.combine(size)
        hasher.combine(url)
        return UInt64(bitPattern: Int64(hasher.finalize()))
    }

    private func index(_ number: Int32) -> Int? { number == Node.none ? nil : Int(number) }

    /// The nodes of a profile, the newest first.
    private func indices(of profile: UInt64) -> [Int] {
        guard let head = heads[profile] else { return [] }
        return sequence(first: Int(head)) { index(nodes[$0].next) }.map { $0 }
    }

    private func find(_ profile: UInt64, _ place: UInt64) -> Int? {
        guard let head = heads[profile] else { return nil }
        return sequence(first: Int(head)) { index(nodes[$0].next) }.first { nodes[$0].place == place }
    }

    private mutating func add(_ node: Node) {
        guard let index = makeRoom() else { return }
        nodes[index] = node
        nodes[index].older = newest
        nodes[index].next = heads[node.profile] ?? Node.none
        if let before = self.index(newest) { nodes[before].newer = Int32(index) } else { oldest = Int32(index) }
        newest = Int32(index)
        heads[node.profile] = Int32(index)
        count += 1

        func makeRoom() -> Int? {
            if free == Node.none, memory.take(Self.bytesOfOne) {
                nodes.append(node)
                return nodes.count - 1
            }
            if free == Node.none, let index = self.index(oldest) { remove(index) }
            guard let index = self.index(free) else { return nil }
            free = nodes[index].next
            return index
        }
    }

    private mutating func remove(_ index: Int) {
        let node = nodes[index]
        if let older = self.index(node.older) { nodes[older].newer = node.newer } else { oldest = node.newer }
        if let newer = self.index(node.newer) { nodes[newer].older = node.older } else { newest = node.older }
        if heads[node.profile] == Int32(index) {
            heads[node.profile] = node.next == Node.none ? nil : node.next
        } else if let before = indices(of: node.profile).first(where: { nodes[$0].next == Int32(index) }) {
            nodes[before].next = node.next
        }
        nodes[index].next = free
        free = Int32(index)
        count -= 1
    }

    /// Gives memory back when most of it is free.
    private mutating func shrink() {
        guard nodes.count > 64, count < nodes.count / 4 else { return }
        var map = ExpiringSlotMap(limit: limit, memory: memory)
        map.nodes.reserveCapacity(count)
        memory.settle(at: 0)
        var next = index(oldest)
        while let current = next {
            let node = nodes[current]
            map.add(
                Node(profile: node.profile, place: node.place, until: node.until, value: node.value, size: node.size))
            next = index(node.newer)
        }
        self = map
    }
}
