import Foundation
import HelperProtocol
import NIOCore
import Testing

/// What becomes of a picture.
@Suite(.timeLimit(.minutes(2))) struct RenderingTests {
    private let renderer: Renderer
    private let worker: RendererWorker

    init() throws {
        renderer = try Renderer()
        worker = try renderer.worker()
    }

    /// 48 by 32 pixels, of every kind that people have.
    static let kinds = [
        "baseline.jpg", "progressive.jpg", "cmyk.jpg", "icc.png", "palette.png", "16-bit.png", "lossy.webp",
        "lossless.webp", "still.gif", "animated.gif", "animated.webp", "plain.avif", "animated.avif",
    ]

    @Test(arguments: kinds)
    func `a picture of any kind fills a square, in the colours that it has`(kind: String) throws {
        // CMYK has no colours as strong as the screen's, and no profile here that says which it has.
        let tolerance = kind == "cmyk.jpg" ? 140 : 40
        let (answer, bytes) = try worker.render(try Pictures.named(kind), side: 24)
        #expect(answer.outcome == .rendered)
        let seen = try SeenPicture(bytes)
        #expect(seen.width == 24 && seen.height == 24)
        #expect(answer.width == 24 && answer.height == 24)
        #expect(seen.showsScene(tolerance: tolerance), "\(kind)")
        #expect(!seen.hasProfile)
    }

    @Test(arguments: [
        "rgb-as-gray.jpg", "rgb-as-gray.png", "rgb-as-gray.webp", "rgb-as-gray.avif", "rgb-as-cmyk.jpg",
        "rgb-as-broken.jpg", "cmyk-as-rgb.jpg", "cmyk-as-broken.jpg",
    ])
    func `a profile that does not describe the colors of an image is ignored`(name: String) throws {
        let (answer, bytes) = try worker.render(try Pictures.named(name), side: 24, format: .png)
        #expect(answer.outcome == .rendered)
        let seen = try SeenPicture(bytes)
        #expect(seen.showsScene(tolerance: name.hasPrefix("cmyk") ? 140 : 40), "\(name)")
        #expect(seen.bands == 3)
    }

    @Test(arguments: ["gray-as-rgb.jpg", "gray-as-cmyk.jpg", "gray-as-broken.jpg", "gray-as-nothing.jpg"])
    func `a gray photograph with a profile of another color space stays gray`(name: String) throws {
        let (answer, bytes) = try worker.render(try Pictures.named(name), side: 24, format: .png)
        #expect(answer.outcome == .rendered)
        let seen = try SeenPicture(bytes)
        let quarters: [(x: Double, y: Double, gray: Int)] = [
            (0.25, 0.25, 76), (0.75, 0.25, 150), (0.25, 0.75, 29), (0.75, 0.75, 255),
        ]
        for quarter in quarters {
            let color = seen.colour(quarter.x, quarter.y)
            #expect(color.areNear(quarter.gray, within: 8), "\(name): \(color)")
        }
    }

    @Test func `a profile that describes the colors of an image is applied`() throws {
        let (_, swapped) = try worker.render(try Pictures.named("swapped.jpg"), side: 24, format: .png)
        #expect(try SeenPicture(swapped).showsScene())
        for name in ["linear-gray.jpg", "linear-gray.png"] {
            let (_, bytes) = try worker.render(try Pictures.named(name), side: 24, format: .pixels)
            #expect(bytes.count == 4 * 24 * 24)
            #expect(Array(bytes.prefix(3)).areNear(188, within: 4), "\(name): \(bytes.prefix(4))")
        }
    }

    @Test func `what the first frame of a GIF does not cover is transparent`() throws {
        let (answer, bytes) = try worker.render(
            try Pictures.named("partial.gif"), side: 48, fit: .contain, format: .pixels)
        #expect(answer.outcome == .rendered && answer.width == 48 && answer.height == 32)
        func pixel(_ column: Int, _ row: Int) -> [UInt8] {
            let start = 4 * (row * 48 + column)
            return Array(bytes[start..<start + 4])
        }
        let outside: [(Int, Int)] = [(0, 0), (47, 0), (0, 31), (47, 31), (24, 4), (6, 16)]
        for (column, row) in outside {
            let seen = pixel(column, row)
            #expect(seen[3] == 0, "\(column), \(row): \(seen)")
        }
        // The frame: 24 x 16 pixels in the middle.
        #expect(pixel(14, 10) == [255, 0, 0, 255])
        #expect(pixel(34, 22) == [255, 255, 255, 255])
    }

    @Test(arguments: [
        ("baseline.jpg", 2), ("progressive.jpg", 2), ("palette.png", 12), ("16-bit.png", 12), ("still.gif", 1),
        ("animated.gif", 1), ("still.gif", 2),
    ])
    func `an image that lacks only its end marker is rendered`(name: String, missing: Int) throws {
        let source = try Pictures.named(name)
        let (answer, bytes) = try worker.render(source.dropLast(missing), side: 24)
        #expect(answer.outcome == .rendered)
        #expect(try SeenPicture(bytes).showsScene())
    }

    @Test func `a JPEG with stray bytes between its segments is rendered`() throws {
        var source = try Pictures.named("baseline.jpg")
        let frame = try #require(source.indices.dropLast().first { source[$0] == 0xFF && source[$0 + 1] == 0xC0 })
        source.insert(contentsOf: [0, 0, 0], at: frame)
        let (answer, bytes) = try worker.render(source, side: 24)
        #expect(answer.outcome == .rendered)
        #expect(try SeenPicture(bytes).showsScene())
    }

    @Test(arguments: ["baseline.jpg", "palette.png"])
    func `a large image is rendered within its limit of pixels, also after other images`(first: String) throws {
        let side = 5_000
        let worker = try renderer.worker(mostPixels: UInt32(side * side))
        for name in ["exif-6.jpg", "progressive.jpg", "animated.webp", "plain.avif", "bomb-bits.png", first] {
            _ = try worker.render(try Pictures.named(name), side: 24)
        }
        for _ in 0..<2 {
            #expect(try worker.render(try Pictures.large(side: side), side: 64).answer.outcome == .rendered)
        }
        #expect(try worker.render(try Pictures.large(side: side + 1), side: 64).answer.outcome == .tooManyPixels)
    }

    @Test(arguments: 1...8)
    func `a photograph is upright, whichever way the camera was held, and says no more where it was taken`(
        turn: Int
    ) throws {
        let source = try Pictures.named("exif-\(turn).jpg")
        #expect(source.holds("Somebody Else"))
        let (answer, bytes) = try worker.render(source, side: 24, fit: .contain)
        #expect(answer.width == 24 && answer.height == 16)
        #expect(try SeenPicture(bytes).showsScene())
        #expect(!bytes.holds("Somebody Else"))
        #expect(!bytes.holds("Exif"))
    }

    @Test(arguments: [PictureFormat.png, .jpeg, .webp])
    func `it comes in the format that was asked for`(format: PictureFormat) throws {
        let (answer, bytes) = try worker.render(try Pictures.named("alpha.png"), side: 24, format: format)
        #expect(answer.format == format)
        let marks: [PictureFormat: [UInt8]] = [
            .png: [0x89, 0x50], .jpeg: [0xFF, 0xD8], .webp: Array("RIFF".utf8),
        ]
        #expect(bytes.starts(with: marks[format] ?? []))
        let seen = try SeenPicture(bytes)
        #expect(seen.bands == (format == .jpeg ? 3 : 4))
        // What was transparent is white where nothing can be transparent.
        if format == .jpeg { #expect(seen.colour(0.75, 0.75).allSatisfy { $0 > 240 }) }
    }

    @Test(arguments: [
        ("baseline.jpg", PictureFormat.jpeg), ("palette.png", .png), ("still.gif", .png), ("lossy.webp", .webp),
        ("plain.avif", .webp),
    ])
    func `left to itself it keeps the format, where there is an encoder for it`(
        source: String, format: PictureFormat
    ) throws {
        #expect(try worker.render(try Pictures.named(source), side: 16).answer.format == format)
    }

    @Test(arguments: [(PictureFit.cover, 32, 32), (.contain, 48, 32)])
    func `nothing is ever enlarged`(fit: PictureFit, width: Int, height: Int) throws {
        let (_, bytes) = try worker.render(try Pictures.named("palette.png"), side: 500, fit: fit)
        let seen = try SeenPicture(bytes)
        #expect(seen.width == width && seen.height == height)
        #expect(seen.showsScene())
    }

    @Test(arguments: ["palette.png", "alpha.png", "16-bit.png", "grey.jpg", "animated.gif", "plain.avif"])
    func `it comes as pixels, which say how opaque they are`(kind: String) throws {
        let (answer, bytes) = try worker.render(try Pictures.named(kind), side: 24, fit: .contain, format: .pixels)
        #expect(answer.outcome == .rendered && answer.format == .pixels)
        #expect(answer.width == 24 && answer.height == 16 && bytes.count == 4 * 24 * 16)
        func pixel(_ column: Int, _ row: Int) -> [UInt8] {
            let start = 4 * (row * 24 + column)
            return Array(bytes[start..<start + 4])
        }
        let (red, white) = (pixel(4, 4), pixel(20, 12))
        if kind != "grey.jpg" { #expect(red[0] > 200 && red[1] < 60 && red[2] < 60, "\(red)") }
        #expect(red[3] == 255)
        #expect(kind == "alpha.png" ? white[3] < 60 : white[3] == 255, "\(white)")
    }

    @Test func `an answer whose bytes are not those of its pixels is none`() {
        for (length, isOne) in [(24, true), (23, false), (25, false)] {
            var head = ByteBuffer()
            RenderAnswer(length: length, number: 1, outcome: .rendered, format: .pixels, width: 3, height: 2)
                .write(to: &head)
            #expect((RenderAnswer(&head) != nil) == isOne)
        }
    }

    @Test func `one worker makes many, and the program ends with whoever started it`() throws {
        let source = try Pictures.named("baseline.jpg")
        for side in 1...32 as ClosedRange<UInt16> {
            #expect(try worker.render(source, side: side).answer.width == side)
        }
        #expect(try renderer.end() == 0)
    }
}

extension [UInt8] {
    func areNear(_ due: Int, within tolerance: Int) -> Bool {
        allSatisfy { (part: UInt8) -> Bool in abs(Int(part) - due) <= tolerance }
    }

    func holds(_ text: String) -> Bool { Data(self).range(of: Data(text.utf8)) != nil }
}
