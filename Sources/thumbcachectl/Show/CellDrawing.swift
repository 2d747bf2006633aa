/// Draws an image with characters, two pixels per cell: an upper half block with foreground and background color.
struct CellDrawing {
    let pixels: Pixels
    let colors: Terminal.Colors

    var lines: [String] {
        stride(from: 0, to: pixels.height, by: 2).map { colors == .none ? shades($0) : blocks($0) }
    }

    private func blocks(_ row: Int) -> String {
        var text = ""
        var (front, back): (Pixels.Color?, Pixels.Color?) = (nil, nil)
        for column in 0..<pixels.width {
            let (upper, lower) = (pixels[column, row], pixels[column, row + 1])
            let (character, wantsFront, wantsBack) =
                switch (upper, lower) {
                case (nil, nil): (" ", front, Pixels.Color?.none)
                case (let upper?, nil): ("▀", upper, nil)
                case (nil, let lower?): ("▄", lower, nil)
                case (let upper?, let lower?): ("▀", upper, lower)
                }
            if wantsBack == nil, back != nil { text += "\u{1b}[49m" }
            if let wantsBack, wantsBack != back { text += code(48, wantsBack) }
            if let wantsFront, wantsFront != front { text += code(38, wantsFront) }
            (front, back) = (wantsFront, wantsBack)
            text += character
        }
        return text + "\u{1b}[0m"
    }

    private func code(_ place: Int, _ color: Pixels.Color) -> String {
        colors == .all
            ? "\u{1b}[\(place);2;\(color.red);\(color.green);\(color.blue)m" : "\u{1b}[\(place);5;\(color.number)m"
    }

    /// Without colors: ASCII characters that are denser for brighter pixels.
    private func shades(_ row: Int) -> String {
        let ramp = Array(" .:-=+*#%@")
        var text = ""
        for column in 0..<pixels.width {
            let seen = [pixels[column, row], pixels[column, row + 1]].compactMap { $0?.brightness }
            // Black differs from transparent.
            let level = seen.isEmpty ? 0 : max(1, seen.reduce(0, +) * ramp.count / (2 * 256))
            text.append(ramp[min(level, ramp.count - 1)])
        }
        return String(text.reversed().drop { $0 == " " }.reversed())
    }
}
