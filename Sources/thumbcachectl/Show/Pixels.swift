import NIOCore

/// A decoded image: red, green, blue and opacity of each pixel, in rows from the top.
struct Pixels: Equatable {
    let width: Int
    let height: Int
    /// Four bytes per pixel.
    let bytes: [UInt8]

    struct Color: Hashable {
        var red: UInt8
        var green: UInt8
        var blue: UInt8
    }

    /// The color of a pixel; nil outside the image and for pixels that are mostly transparent.
    subscript(column: Int, row: Int) -> Color? {
        let start = 4 * (row * width + column)
        guard column < width, row < height, start + 3 < bytes.count, bytes[start + 3] >= 128 else { return nil }
        return Color(red: bytes[start], green: bytes[start + 1], blue: bytes[start + 2])
    }
}

extension Pixels.Color {
    /// The nearest of the 256 terminal colors: a cube of 6 × 6 × 6, and 24 grays.
    var number: Int {
        func step(_ value: UInt8) -> Int { value < 48 ? 0 : value < 115 ? 1 : (Int(value) - 35) / 40 }
        let steps = [0, 95, 135, 175, 215, 255]
        let (red, green, blue) = (step(red), step(green), step(blue))
        let cube = distance(steps[red], steps[green], steps[blue])
        let gray = min(23, max(0, (Int(self.red) + Int(self.green) + Int(self.blue) - 24 + 15) / 30))
        let level = 8 + 10 * gray
        return distance(level, level, level) < cube ? 232 + gray : 16 + 36 * red + 6 * green + blue
    }

    private func distance(_ red: Int, _ green: Int, _ blue: Int) -> Int {
        let parts = [Int(self.red) - red, Int(self.green) - green, Int(self.blue) - blue]
        return parts.reduce(0) { $0 + $1 * $1 }
    }

    /// Perceived brightness, 0 to 255 (ITU-R BT.601).
    var brightness: Int { (299 * Int(red) + 587 * Int(green) + 114 * Int(blue)) / 1_000 }
}
