/// SIEVE, an eviction order for caches (Zhang et al., "SIEVE is Simpler than LRU", NSDI 2024): a queue with a hand that
/// skips elements used since it last passed. A hit only marks its element, without the lock that guards this value.
///
/// A value. The elements are in one array and are linked by index.
package struct Sieve<Element: Sendable>: Sendable {
    /// Index of an element, valid until the element is removed.
    package typealias Handle = Int

    private struct Node: Sendable {
        var element: Element?
        var older: Int
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

    /// Removes an element, which must be in the queue.
    package mutating func remove(_ handle: Handle) {
        let node = nodes[handle]
        if hand == handle { hand = node.newer }
        if node.older != Self.none { nodes[node.older].newer = node.newer } else { oldest = node.newer }
        if node.newer != Self.none { nodes[node.newer].older = node.older } else { newest = node.older }
        nodes[handle].element = nil
        free.append(handle)
        count -= 1
    }

    /// Moves the hand to the next element that is not marked, and removes it.
    /// - Parameter removeMark: removes an element's mark and returns whether it was marked.
    package mutating func evict(removeMark: (Element) -> Bool) -> Element? {
        // Two rounds: each element is skipped at most once, unless hits mark it again meanwhile.
        for _ in 0..<(2 * count) {
            let index = hand == Self.none ? oldest : hand
            guard let element = nodes[index].element else { return nil }
            if removeMark(element) {
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
