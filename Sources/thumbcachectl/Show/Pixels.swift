import NIOCore

/// A picture as it is drawn: red, green, blue and opacity of each pixel, in rows from the top.
struct Pixels: Equatable {
    let width: Int
    let height: Int
    /// Four for each pixel.
    let bytes: [UInt8]

    struct Colour: Hashable {
        var red: UInt8
        var green: UInt8
        var blue: UInt8
    }

    /// The colour at a place; nil where there is none, or nothing that covers what is behind it.
    subscript(column: Int, row: Int) -> Colour? {
        let start = 4 * (row * width + column)
        guard column < width, row < height, start + 3 < bytes.count, bytes[start + 3] >= 128 else { return nil }
        return Colour(red: bytes[start], green: bytes[start + 1], blue: bytes[start + 2])
    }
}

extension Pixels.Colour {
    /// The nearest of the 256 that terminals number: a cube of 6 × 6 × 6, and 24 greys.
    var number: Int {
        func step(_ value: UInt8) -> Int { value < 48 ? 0 : value < 115 ? 1 : (Int(value) - 35) / 40 }
        let steps = [0, 95, 135, 175, 215, 255]
        let (red, green, blue) = (step(red), step(green), step(blue))
        let cube = distance(steps[red], steps[green], steps[blue])
        let grey = min(23, max(0, (Int(self.red) + Int(self.green) + Int(self.blue) - 24 + 15) / 30))
        let level = 8 + 10 * grey
        return distance(level, level, level) < cube ? 232 + grey : 16 + 36 * red + 6 * green + blue
    }

    private func distance(_ red: Int, _ green: Int, _ blue: Int) -> Int {
        let parts = [Int(self.red) - red, Int(self.green) - green, Int(self.blue) - blue]
        return parts.reduce(0) { $0 + $1 * $1 }
    }

    /// 0 to 255, as bright as people see it (ITU-R BT.601).
    var brightness: Int { (299 * Int(red) + 587 * Int(green) + 114 * Int(blue)) / 1_000 }
}
