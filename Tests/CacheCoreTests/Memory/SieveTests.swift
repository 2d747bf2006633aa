import TestSupport
import Testing

@testable import CacheCore

@Suite struct SieveTests {
    /// A queue of names, with the set of those that were hit.
    private struct Queue {
        var sieve = Sieve<String>()
        var handles: [String: Sieve<String>.Handle] = [:]
        var marked: Set<String> = []

        mutating func insert(_ names: String...) {
            for name in names { handles[name] = sieve.insert(name) }
        }

        mutating func remove(_ name: String) {
            if let handle = handles.removeValue(forKey: name) { sieve.remove(handle) }
        }

        mutating func evict() -> String? {
            var marked = self.marked
            let victim = sieve.evict { marked.remove($0) != nil }
            self.marked = marked
            if let victim { handles[victim] = nil }
            return victim
        }
    }

    @Test func `without a hit the oldest is evicted first`() {
        var queue = Queue()
        queue.insert("a", "b", "c")
        #expect((0..<4).map { _ in queue.evict() } == ["a", "b", "c", nil])
        #expect(queue.sieve.count == 0)
    }

    @Test func `an entry that was hit is spared once and keeps its place`() {
        var queue = Queue()
        queue.insert("a", "b", "c")
        queue.marked = ["a"]
        #expect(queue.evict() == "b")
        // The hand has passed `a`; new entries are inserted at the other end.
        queue.insert("d")
        #expect(queue.evict() == "c")
        #expect(queue.evict() == "d")
        #expect(queue.evict() == "a")
    }

    @Test
    func `the paper's example: the hand stays where it stopped and reaches newer entries before spared ones`() {
        // Zhang et al., NSDI 2024, figure 4: A to G from new to old; A, B and G were hit.
        var queue = Queue()
        queue.insert("G", "F", "E", "D", "C", "B", "A")
        queue.marked = ["A", "B", "G"]
        #expect(queue.evict() == "F")
        queue.insert("H")
        queue.marked.insert("A")
        queue.marked.insert("D")
        #expect(queue.evict() == "E")
        queue.insert("I")
        queue.marked.insert("B")
        #expect(queue.evict() == "C")
    }

    @Test func `a scan of entries used once does not evict entries used repeatedly`() {
        var queue = Queue()
        let popular = (0..<10).map { "popular \($0)" }
        for name in popular { queue.insert(name) }
        queue.marked.formUnion(popular)
        for number in 0..<1_000 {
            queue.insert("scanned \(number)")
            queue.marked.formUnion(popular)
            if queue.sieve.count > 20 { _ = queue.evict() }
        }
        #expect(Set(popular).isSubset(of: queue.handles.keys))
    }

    @Test func `if all entries are always marked, the oldest is evicted`() {
        var queue = Queue()
        queue.insert("a", "b")
        #expect(queue.sieve.evict { _ in true } == "a")
    }

    @Test(arguments: [["a"], ["b"], ["c"], ["a", "c"], ["c", "b"], ["a", "b", "c"]])
    func `removal anywhere keeps the order of the rest`(removed: [String]) {
        var queue = Queue()
        queue.insert("a", "b", "c")
        for name in removed { queue.remove(name) }
        let rest = ["a", "b", "c"].filter { !removed.contains($0) }
        #expect(queue.sieve.count == rest.count)
        #expect((0..<3).compactMap { _ in queue.evict() } == rest)
    }

    @Test func `the hand moves on when its entry is removed`() {
        var queue = Queue()
        queue.insert("a", "b", "c", "d")
        queue.marked = ["a"]
        #expect(queue.evict() == "b")
        queue.remove("c")
        #expect(queue.evict() == "d")
        #expect(queue.evict() == "a")
    }

    @Test func `freed slots are reused, and a random history agrees with a simple model`() {
        var random = SeededRandom(seed: 7)
        var queue = Queue()
        var model: [String] = []
        for step in 0..<5_000 {
            switch random.next() % 3 {
            case _ where model.count < 10, 0:
                queue.insert("\(step)")
                model.append("\(step)")
            case 1:
                let name = model.remove(at: Int(random.next() % UInt64(model.count)))
                queue.remove(name)
            default:
                guard let victim = queue.evict() else { break }
                #expect(model.contains(victim))
                model.removeAll { $0 == victim }
            }
            #expect(queue.sieve.count == model.count)
        }
        var rest: [String] = []
        while let victim = queue.evict() { rest.append(victim) }
        #expect(rest.sorted() == model.sorted())
    }
}
