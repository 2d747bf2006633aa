import TestSupport

/// All decisions of a simulation, drawn from its seed, with a hash of them: equal hashes mean equal runs.
final class Dice {
    private(set) var random: SeededRandom
    private(set) var hash: UInt64 = 0xcbf2_9ce4_8422_2325

    init(seed: UInt64) { random = SeededRandom(seed: seed) }

    /// A number from 0 to `count` - 1.
    func roll(_ count: Int) -> Int {
        let result = random.next().multipliedFullWidth(by: UInt64(count)).high
        note(UInt64(count) << 32 | result)
        return Int(result)
    }

    func roll(_ range: ClosedRange<Int>) -> Int { range.lowerBound + roll(range.count) }

    /// True with a probability of `share` of 1024.
    func happens(_ share: Int) -> Bool { share > 0 && roll(1_024) < share }

    func one<Element>(of elements: [Element]) -> Element { elements[roll(elements.count)] }

    /// Adds an outcome to the hash.
    func note(_ outcome: UInt64) { hash = (hash ^ outcome) &* 0x100_0000_01b3 }

    /// Calls `body` with the generator, for algorithms of the standard library.
    func withRandom<Result>(_ body: (inout SeededRandom) -> Result) -> Result { body(&random) }
}
