/// A picture drawn with characters, two pixels to a cell: the upper half block has a colour, and so has what is behind
/// it. Nothing of the picture but numbers from 0 to 255 comes into the text.
struct CellDrawing {
    let pixels: Pixels
    let colours: Terminal.Colours

    /// One for each row of cells.
    var lines: [String] {
        stride(from: 0, to: pixels.height, by: 2).map { colours == .none ? shades($0) : blocks($0) }
    }

    private func blocks(_ row: Int) -> String {
        var text = ""
        var (front, back): (Pixels.Colour?, Pixels.Colour?) = (nil, nil)
        for column in 0..<pixels.width {
            let (upper, lower) = (pixels[column, row], pixels[column, row + 1])
            let (character, wantsFront, wantsBack) =
                switch (upper, lower) {
                case (nil, nil): (" ", front, Pixels.Colour?.none)
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

    private func code(_ place: Int, _ colour: Pixels.Colour) -> String {
        colours == .all
            ? "\u{1b}[\(place);2;\(colour.red);\(colour.green);\(colour.blue)m" : "\u{1b}[\(place);5;\(colour.number)m"
    }

    /// Without colours: the brighter, the fuller a character. It is ASCII, which every terminal and every file takes.
    private func shades(_ row: Int) -> String {
        let ramp = Array(" .:-=+*#%@")
        var text = ""
        for column in 0..<pixels.width {
            let seen = [pixels[column, row], pixels[column, row + 1]].compactMap { $0?.brightness }
            // Black is not nothing.
            let level = seen.isEmpty ? 0 : max(1, seen.reduce(0, +) * ramp.count / (2 * 256))
            text.append(ramp[min(level, ramp.count - 1)])
        }
        return String(text.reversed().drop { $0 == " " }.reversed())
    }
}
