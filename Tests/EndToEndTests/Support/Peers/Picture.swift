/// Small images for tests that need to tell them apart: real GIF files of 1 × 1 pixel whose comment is unlike any
/// other.
enum Picture {
    /// A GIF that says `text`, and is `size` bytes long (64 at least).
    static func gif(_ text: String, size: Int = 200) -> [UInt8] {
        let head: [UInt8] =
            Array("GIF89a".utf8) + [1, 0, 1, 0, 0x80, 0, 0]  // 1 × 1, a table of two colours
            + [0x20, 0x40, 0x60, 0xff, 0xff, 0xff]
        let tail: [UInt8] =
            [0x2c, 0, 0, 0, 0, 1, 0, 1, 0, 0]  // one picture
            + [2, 2, 0x44, 1, 0, 0x3b]  // its one pixel, the end
        let room = max(0, size - head.count - tail.count - 3)
        var noise = Noise(seed: text)
        var comment = noise.bytes(room)
        let words = (Array(text.utf8) + [0]).prefix(max(0, min(room, 256) - 1))
        comment.replaceSubrange(1..<1 + words.count, with: words)
        // Cut into blocks of a length and so many bytes, one at least.
        var place = 0
        while place < room {
            var length = min(room - place, 256)
            if room - place - length == 1 { length -= 1 }
            comment[place] = UInt8(length - 1)
            place += length
        }
        return head + [0x21, 0xfe] + comment + [0] + tail
    }
}

/// Bytes that look random and are the same for the same seed.
struct Noise: RandomNumberGenerator {
    private var state: UInt64

    init(seed: String) {
        state = seed.utf8.reduce(0xcbf2_9ce4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
    }

    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var value = state
        value = (value ^ (value >> 30)) &* 0xbf58_476d_1ce4_e5b9
        value = (value ^ (value >> 27)) &* 0x94d0_49bb_1331_11eb
        return value ^ (value >> 31)
    }

    mutating func next() -> UInt8 { UInt8(truncatingIfNeeded: next() as UInt64) }

    /// Eight at a time, because tests run unoptimised.
    mutating func bytes(_ count: Int) -> [UInt8] {
        [UInt8](unsafeUninitializedCapacity: count + 8) { buffer, filled in
            for place in stride(from: 0, to: count, by: 8) {
                UnsafeMutableRawBufferPointer(buffer).storeBytes(of: next(), toByteOffset: place, as: UInt64.self)
            }
            filled = count
        }
    }
}
