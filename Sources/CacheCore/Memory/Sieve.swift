/// SIEVE, an eviction order for caches: a queue in which an element that was used since the hand last passed is spared
/// where it stands (Zhang et al., "SIEVE is Simpler than LRU", NSDI 2024). A hit only marks its element, so that hits
/// need not take the lock that guards this value.
///
/// A value; elements lie in one array and link to each other by index.
package struct Sieve<Element: Sendable>: Sendable {
    /// Names a place in the queue, until its element is removed.
    package typealias Handle = Int

    private struct Node: Sendable {
        var element: Element?
        /// Towards the older end.
        var older: Int
        /// Towards the newer end.
        var newer: Int
    }

    private static var none: Int { -1 }

    private var nodes: [Node] = []
    private var free: [Int] = []
    private var newest = Self.none
    private var oldest = Self.none
    private var hand = Self.none
    package private(set) var count = 0

    package init() {}

    /// Puts an element at the newer end.
    package mutating func insert(_ element: Element) -> Handle {
        let node = Node(element: element, older: newest, newer: Self.none)
        let index: Int
        if let reused = free.popLast() {
            nodes[reused] = node
            index = reused
        } else {
            index = nodes.count
            nodes.append(node)
        }
        if newest != Self.none { nodes[newest].newer = index }
        newest = index
        if oldest == Self.none { oldest = index }
        count += 1
        return index
    }

    /// Takes an element out. `handle` must be one that is in the queue.
    package mutating func remove(_ handle: Handle) {
        let node = nodes[handle]
        if hand == handle { hand = node.newer }
        if node.older != Self.none { nodes[node.older].newer = node.newer } else { oldest = node.newer }
        if node.newer != Self.none { nodes[node.newer].older = node.older } else { newest = node.older }
        nodes[handle].element = nil
        free.append(handle)
        count -= 1
    }

    /// Moves the hand to the next element that was not used since it last passed, and takes that out.
    /// - Parameter takeMark: whether the element is marked as used; unmarks it.
    package mutating func evict(takeMark: (Element) -> Bool) -> Element? {
        // Each element is spared at most once, so two rounds always find one, even while hits go on marking.
        for _ in 0..<(2 * count) {
            let index = hand == Self.none ? oldest : hand
            guard let element = nodes[index].element else { return nil }
            if takeMark(element) {
                hand = nodes[index].newer
            } else {
                hand = index
                remove(index)
                return element
            }
        }
        guard oldest != Self.none, let element = nodes[oldest].element else { return nil }
        remove(oldest)
        return element
    }
}
