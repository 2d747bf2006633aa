/// A name of the protocol, of a command or an option, with its case folded: at most eight letters in one machine word,
/// so that telling commands apart makes no string and costs one comparison each.
struct Word: Equatable, Sendable, ExpressibleByStringLiteral {
    /// The letters in upper case, the last one lowest; 0 for what is no name at all.
    private let letters: UInt64

    @inline(__always)
    init(_ bytes: UnsafeRawBufferPointer) {
        var letters: UInt64 = 0
        guard bytes.count <= 8 else {
            self.letters = 0
            return
        }
        for byte in bytes {
            let letter = byte & 0xDF
            guard letter &- UInt8(ascii: "A") < 26 else {
                self.letters = 0
                return
            }
            letters = letters &<< 8 | UInt64(letter)
        }
        self.letters = letters
    }

    /// Of upper-case letters, eight at most.
    @inline(__always)
    init(stringLiteral text: StaticString) {
        self.init(UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
    }
}
