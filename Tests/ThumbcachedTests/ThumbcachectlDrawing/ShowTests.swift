import Foundation
import Testing

@testable import thumbcachectl

/// What `show` makes of pixels.
@Suite struct ShowTests {
    private func pixels(_ width: Int, _ colours: [[UInt8]]) -> Pixels {
        Pixels(width: width, height: colours.count / width, bytes: colours.flatMap { $0 })
    }
    private let red: [UInt8] = [255, 0, 0, 255]
    private let blue: [UInt8] = [0, 0, 255, 255]
    private let nothing: [UInt8] = [9, 9, 9, 0]

    @Test func `two pixels share a cell, and a colour is said once`() {
        let picture = pixels(2, [red, red, blue, blue])
        let all = CellDrawing(pixels: picture, colours: .all).lines
        #expect(all == ["\u{1b}[48;2;0;0;255m\u{1b}[38;2;255;0;0m▀▀\u{1b}[0m"])
        let numbered = CellDrawing(pixels: picture, colours: .numbered).lines
        #expect(numbered == ["\u{1b}[48;5;21m\u{1b}[38;5;196m▀▀\u{1b}[0m"])
    }

    @Test func `what is transparent shows what is behind it, and so does half a last row`() {
        let picture = pixels(1, [red, blue, nothing, nothing, red, nothing, nothing, blue, red])
        let lines = CellDrawing(pixels: picture, colours: .all).lines
        #expect(lines.count == 5)
        #expect(lines[0].hasPrefix("\u{1b}[48;2;0;0;255m\u{1b}[38;2;255;0;0m▀"))
        #expect(lines[1] == " \u{1b}[0m")
        #expect(lines[2] == "\u{1b}[38;2;255;0;0m▀\u{1b}[0m")
        #expect(lines[3] == "\u{1b}[38;2;0;0;255m▄\u{1b}[0m")
        #expect(lines[4] == "\u{1b}[38;2;255;0;0m▀\u{1b}[0m")
        let beside = CellDrawing(pixels: pixels(2, [red, red, blue, nothing]), colours: .all).lines
        #expect(beside == ["\u{1b}[48;2;0;0;255m\u{1b}[38;2;255;0;0m▀\u{1b}[49m▀\u{1b}[0m"])
    }

    @Test func `without colours it is ASCII`() {
        let white: [UInt8] = [255, 255, 255, 255]
        let black: [UInt8] = [0, 0, 0, 255]
        let picture = pixels(4, [white, black, nothing, nothing, white, black, nothing, nothing])
        #expect(CellDrawing(pixels: picture, colours: .none).lines == ["@."])
    }

    @Test(arguments: [
        ([0, 0, 0], 16), ([255, 255, 255], 231), ([255, 0, 0], 196), ([95, 135, 175], 67), ([8, 8, 8], 232),
        ([128, 128, 128], 244), ([238, 238, 238], 255), ([1, 2, 250], 21),
    ])
    func `a colour has the number of its nearest`(_ colour: [UInt8], _ number: Int) {
        #expect(Pixels.Colour(red: colour[0], green: colour[1], blue: colour[2]).number == number)
    }

    @Test func `whatever bytes a decoder says, a terminal gets nothing but what draws`() throws {
        // Escape sequences, and lengths that fit no picture.
        let hostile = Array("\u{1b}]0;title\u{7}\u{1b}[2J\u{1b}_Gq=0\u{1b}\\\n\r\u{9b}c".utf8)
        for count in 0...hostile.count {
            let picture = Pixels(width: 3, height: 4, bytes: Array(hostile.prefix(count)) + [255, 255])
            for colours in [Terminal.Colours.none, .numbered, .all] {
                for line in CellDrawing(pixels: picture, colours: colours).lines {
                    #expect(line.wholeMatch(of: /(?:\x{1b}\[(?:0|49|[34]8;[0-9;]+)m|[ ▀▄.:\-=+*#%@])*/) != nil)
                }
            }
            let kitty = KittyGraphics.text(picture)
            #expect(kitty.wholeMatch(of: /(?:\x{1b}_G[a-zA-Z0-9=,]+;[A-Za-z0-9+\/=]*\x{1b}\\)*/) != nil)
        }
    }

    @Test func `graphics come in pieces, and the last says so`() throws {
        let picture = Pixels(width: 40, height: 40, bytes: [UInt8](repeating: 7, count: 6_400))
        let parts = KittyGraphics.text(picture).split(separator: "\u{1b}\\").map(String.init)
        #expect(parts.count == 3)
        #expect(parts[0].hasPrefix("\u{1b}_Ga=T,f=32,s=40,v=40,q=2,m=1;"))
        #expect(parts[1].hasPrefix("\u{1b}_Gm=1;"))
        #expect(parts[2].hasPrefix("\u{1b}_Gm=0;"))
        let digits = parts.map { $0.split(separator: ";").last ?? "" }
        #expect(digits[0].count == 4_096 && digits[1].count == 4_096)
        #expect(Data(base64Encoded: digits.joined()).map(Array.init) == picture.bytes)
    }

    @Test(arguments: [
        ("", Bool?.none), ("\u{1b}_Gi=31;OK\u{1b}\\", nil), ("\u{1b}[?62;2", nil),
        ("\u{1b}_Gi=31;OK\u{1b}\\\u{1b}[?62;22c", true), ("\u{1b}[?62;22c", false),
        ("typed\u{1b}_Gi=31;OK\u{1b}\\\u{1b}[?6c", true), ("\u{1b}_Gi=31;ENOTSUP\u{1b}\\\u{1b}[?6c", false),
        // What is not its answer to this question.
        ("\u{1b}[?6c\u{1b}_Gi=31;OK\u{1b}\\", false),
    ])
    func `a terminal has graphics if it says so before what all say`(_ answer: String, _ isOffered: Bool?) {
        #expect(KittyGraphics.isOffered(in: Array(answer.utf8)) == isOffered)
    }

    @Test(arguments: [
        (["TERM": "xterm", "COLORTERM": "truecolor"], Terminal.Colours.all), (["TERM": "xterm-direct"], .all),
        (["TERM": "xterm", "COLORTERM": "1"], .numbered), (["TERM": "xterm"], .numbered), (["TERM": "dumb"], .none),
        (["TERM": "xterm", "COLORTERM": "24bit", "NO_COLOR": "1"], .none),
    ])
    func `a terminal has the colours that its variables say`(
        _ variables: [String: String], _ colours: Terminal.Colours
    ) {
        #expect(Terminal(1, isTerminal: true) { variables[$0] }.colours == colours)
    }

    @Test func `a program that nobody starts by hand is looked for beside this one, and below its prefix`() {
        #expect(
            Programs.places("helper", beside: "/usr/bin") == ["/usr/bin/helper", "/usr/libexec/helper"])
        #expect(Programs.places("helper", beside: "/bin") == ["/bin/helper", "/libexec/helper"])
    }

    @Test func `a program that does not end is ended, and one that says too much as well`() throws {
        let slow = try Programs.run("/bin/sh", ["-c", "echo here; exec sleep 600"], environment: [:], milliseconds: 50)
        #expect(slow.status == nil)
        let flood = try Programs.run("/bin/sh", ["-c", "exec yes"], environment: ["PATH": "/usr/bin:/bin"])
        #expect(flood.status == nil && flood.output.count < 300_000)
        let both = try Programs.run("/bin/sh", ["-c", "echo a; echo b >&2; echo $X; exit 3"], environment: ["X": "c"])
        #expect(both.status == 3 && both.lines == ["a", "b", "c"])
    }
}
