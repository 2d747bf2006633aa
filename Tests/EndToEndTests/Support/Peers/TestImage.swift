/// GIF files of 1 × 1 pixel that differ in their comment.
enum TestImage {
    /// A GIF whose comment contains `text` and noise, `size` bytes long (at least 64).
    static func gif(_ text: String, size: Int = 200) -> [UInt8] {
        let head: [UInt8] =
            Array("GIF89a".utf8) + [1, 0, 1, 0, 0x80, 0, 0]  // 1 × 1 pixel, two colors
            + [0x20, 0x40, 0x60, 0xff, 0xff, 0xff]
        let tail: [UInt8] =
            [0x2c, 0, 0, 0, 0, 1, 0, 1, 0, 0]  // image descriptor
            + [2, 2, 0x44, 1, 0, 0x3b]  // one pixel, trailer
        let room = max(0, size - head.count - tail.count - 3)
        var noise = Noise(seed: text)
        var comment = noise.bytes(room)
        let words = (Array(text.utf8) + [0]).prefix(max(0, min(room, 256) - 1))
        comment.replaceSubrange(1..<1 + words.count, with: words)
        // Sub-blocks: a length byte and 1 to 255 bytes.
        var index = 0
        while index < room {
            var length = min(room - index, 256)
            if room - index - length == 1 { length -= 1 }
            comment[index] = UInt8(length - 1)
            index += length
        }
        return head + [0x21, 0xfe] + comment + [0] + tail
    }
}

/// A ``SeededRandom`` seeded with a text.
struct Noise: RandomNumberGenerator {
    private var random: SeededRandom

    init(seed: String) {
        random = SeededRandom(seed: seed.utf8.reduce(0xcbf2_9ce4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 })
    }

    mutating func next() -> UInt64 { random.next() }

    mutating func next() -> UInt8 { UInt8(truncatingIfNeeded: next() as UInt64) }

    /// Random bytes, produced eight at a time because tests run without optimization.
    mutating func bytes(_ count: Int) -> [UInt8] {
        [UInt8](unsafeUninitializedCapacity: count + 8) { buffer, filled in
            for index in stride(from: 0, to: count, by: 8) {
                UnsafeMutableRawBufferPointer(buffer).storeBytes(of: next(), toByteOffset: index, as: UInt64.self)
            }
            filled = count
        }
    }
}
