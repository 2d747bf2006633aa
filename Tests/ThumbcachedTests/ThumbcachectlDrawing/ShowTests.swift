import Foundation
import Testing

@testable import thumbcachectl

/// The drawing of `show`.
@Suite struct ShowTests {
    private func pixels(_ width: Int, _ colors: [[UInt8]]) -> Pixels {
        Pixels(width: width, height: colors.count / width, bytes: colors.flatMap { $0 })
    }
    private let red: [UInt8] = [255, 0, 0, 255]
    private let blue: [UInt8] = [0, 0, 255, 255]
    private let nothing: [UInt8] = [9, 9, 9, 0]

    @Test func `two pixels share a cell, and colors are not repeated`() {
        let image = pixels(2, [red, red, blue, blue])
        let all = CellDrawing(pixels: image, colors: .all).lines
        #expect(all == ["\u{1b}[48;2;0;0;255m\u{1b}[38;2;255;0;0m▀▀\u{1b}[0m"])
        let numbered = CellDrawing(pixels: image, colors: .numbered).lines
        #expect(numbered == ["\u{1b}[48;5;21m\u{1b}[38;5;196m▀▀\u{1b}[0m"])
    }

    @Test func `transparent pixels and a missing half row have no color`() {
        let image = pixels(1, [red, blue, nothing, nothing, red, nothing, nothing, blue, red])
        let lines = CellDrawing(pixels: image, colors: .all).lines
        #expect(lines.count == 5)
        #expect(lines[0].hasPrefix("\u{1b}[48;2;0;0;255m\u{1b}[38;2;255;0;0m▀"))
        #expect(lines[1] == " \u{1b}[0m")
        #expect(lines[2] == "\u{1b}[38;2;255;0;0m▀\u{1b}[0m")
        #expect(lines[3] == "\u{1b}[38;2;0;0;255m▄\u{1b}[0m")
        #expect(lines[4] == "\u{1b}[38;2;255;0;0m▀\u{1b}[0m")
        let beside = CellDrawing(pixels: pixels(2, [red, red, blue, nothing]), colors: .all).lines
        #expect(beside == ["\u{1b}[48;2;0;0;255m\u{1b}[38;2;255;0;0m▀\u{1b}[49m▀\u{1b}[0m"])
    }

    @Test func `without colors, the image is drawn in ASCII`() {
        let white: [UInt8] = [255, 255, 255, 255]
        let black: [UInt8] = [0, 0, 0, 255]
        let image = pixels(4, [white, black, nothing, nothing, white, black, nothing, nothing])
        #expect(CellDrawing(pixels: image, colors: .none).lines == ["@."])
    }

    @Test(arguments: [
        ([0, 0, 0], 16), ([255, 255, 255], 231), ([255, 0, 0], 196), ([95, 135, 175], 67), ([8, 8, 8], 232),
        ([128, 128, 128], 244), ([238, 238, 238], 255), ([1, 2, 250], 21),
    ])
    func `a color is mapped to the nearest terminal color`(_ color: [UInt8], _ number: Int) {
        #expect(Pixels.Color(red: color[0], green: color[1], blue: color[2]).number == number)
    }

    @Test func `hostile pixel bytes never reach the terminal as control sequences`() throws {
        // Escape sequences, and lengths that do not match the dimensions.
        let hostile = Array("\u{1b}]0;title\u{7}\u{1b}[2J\u{1b}_Gq=0\u{1b}\\\n\r\u{9b}c".utf8)
        for count in 0...hostile.count {
            let image = Pixels(width: 3, height: 4, bytes: Array(hostile.prefix(count)) + [255, 255])
            for colors in [Terminal.Colors.none, .numbered, .all] {
                for line in CellDrawing(pixels: image, colors: colors).lines {
                    #expect(line.wholeMatch(of: /(?:\x{1b}\[(?:0|49|[34]8;[0-9;]+)m|[ ▀▄.:\-=+*#%@])*/) != nil)
                }
            }
            let kitty = KittyGraphics.text(image)
            #expect(kitty.wholeMatch(of: /(?:\x{1b}_G[a-zA-Z0-9=,]+;[A-Za-z0-9+\/=]*\x{1b}\\)*/) != nil)
        }
    }

    @Test func `graphics are sent in chunks, and the last is marked`() throws {
        let image = Pixels(width: 40, height: 40, bytes: [UInt8](repeating: 7, count: 6_400))
        let parts = KittyGraphics.text(image).split(separator: "\u{1b}\\").map(String.init)
        #expect(parts.count == 3)
        #expect(parts[0].hasPrefix("\u{1b}_Ga=T,f=32,s=40,v=40,q=2,m=1;"))
        #expect(parts[1].hasPrefix("\u{1b}_Gm=1;"))
        #expect(parts[2].hasPrefix("\u{1b}_Gm=0;"))
        let digits = parts.map { $0.split(separator: ";").last ?? "" }
        #expect(digits[0].count == 4_096 && digits[1].count == 4_096)
        #expect(Data(base64Encoded: digits.joined()).map(Array.init) == image.bytes)
    }

    @Test(arguments: [
        ("", Bool?.none), ("\u{1b}_Gi=31;OK\u{1b}\\", nil), ("\u{1b}[?62;2", nil),
        ("\u{1b}_Gi=31;OK\u{1b}\\\u{1b}[?62;22c", true), ("\u{1b}[?62;22c", false),
        ("typed\u{1b}_Gi=31;OK\u{1b}\\\u{1b}[?6c", true), ("\u{1b}_Gi=31;ENOTSUP\u{1b}\\\u{1b}[?6c", false),
        // The response comes after the device attributes.
        ("\u{1b}[?6c\u{1b}_Gi=31;OK\u{1b}\\", false),
    ])
    func `graphics are supported if the response precedes the device attributes`(
        _ response: String, _ isSupported: Bool?
    ) {
        #expect(KittyGraphics.isSupported(in: Array(response.utf8)) == isSupported)
    }

    @Test(arguments: [
        (["TERM": "xterm", "COLORTERM": "truecolor"], Terminal.Colors.all), (["TERM": "xterm-direct"], .all),
        (["TERM": "xterm", "COLORTERM": "1"], .numbered), (["TERM": "xterm"], .numbered), (["TERM": "dumb"], .none),
        (["TERM": "xterm", "COLORTERM": "24bit", "NO_COLOR": "1"], .none),
    ])
    func `colors follow the environment variables`(
        _ variables: [String: String], _ colors: Terminal.Colors
    ) {
        #expect(Terminal(1, isTerminal: true) { variables[$0] }.colors == colors)
    }

    @Test func `a helper program is searched for beside this one and in libexec`() {
        #expect(
            Programs.places("helper", beside: "/usr/bin") == ["/usr/bin/helper", "/usr/libexec/helper"])
        #expect(Programs.places("helper", beside: "/bin") == ["/bin/helper", "/libexec/helper"])
    }

    @Test func `a child is killed after the timeout or too much output`() throws {
        let slow = try Programs.run("/bin/sh", ["-c", "echo here; exec sleep 600"], environment: [:], milliseconds: 50)
        #expect(slow.status == nil)
        let flood = try Programs.run("/bin/sh", ["-c", "exec yes"], environment: ["PATH": "/usr/bin:/bin"])
        #expect(flood.status == nil && flood.output.count < 300_000)
        let both = try Programs.run("/bin/sh", ["-c", "echo a; echo b >&2; echo $X; exit 3"], environment: ["X": "c"])
        #expect(both.status == 3 && both.lines == ["a", "b", "c"])
    }
}
