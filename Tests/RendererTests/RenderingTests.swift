import Foundation
import HelperProtocol
import ImageOptions
import NIOCore
import Testing

/// Renditions of images of all supported formats.
@Suite(.timeLimit(.minutes(2))) struct RenderingTests {
    private let renderer: Renderer
    private let worker: RendererWorker

    init() throws {
        renderer = try Renderer()
        worker = try renderer.worker()
    }

    /// Images of 48 by 32 pixels in every supported format.
    static let kinds = [
        "baseline.jpg", "progressive.jpg", "cmyk.jpg", "icc.png", "palette.png", "16-bit.png", "lossy.webp",
        "lossless.webp", "still.gif", "animated.gif", "animated.webp", "plain.avif", "animated.avif",
    ]

    @Test(arguments: kinds)
    func `an image of any format fills a square and keeps its colors`(kind: String) throws {
        // CMYK colors are less saturated, and this image has no profile that defines them.
        let tolerance = kind == "cmyk.jpg" ? 140 : 40
        let (reply, bytes) = try worker.render(try TestImages.named(kind), side: 24)
        #expect(reply.outcome == .rendered)
        let seen = try DecodedImage(bytes)
        #expect(seen.width == 24 && seen.height == 24)
        #expect(reply.width == 24 && reply.height == 24)
        #expect(seen.showsScene(tolerance: tolerance), "\(kind)")
        #expect(!seen.hasProfile)
    }

    @Test(arguments: [
        "rgb-as-gray.jpg", "rgb-as-gray.png", "rgb-as-gray.webp", "rgb-as-gray.avif", "rgb-as-cmyk.jpg",
        "rgb-as-broken.jpg", "cmyk-as-rgb.jpg", "cmyk-as-broken.jpg",
    ])
    func `a profile that does not describe the colors of an image is ignored`(name: String) throws {
        let (reply, bytes) = try worker.render(try TestImages.named(name), side: 24, output: .file(.png))
        #expect(reply.outcome == .rendered)
        let seen = try DecodedImage(bytes)
        #expect(seen.showsScene(tolerance: name.hasPrefix("cmyk") ? 140 : 40), "\(name)")
        #expect(seen.bands == 3)
    }

    @Test(arguments: ["gray-as-rgb.jpg", "gray-as-cmyk.jpg", "gray-as-broken.jpg", "gray-as-nothing.jpg"])
    func `a gray photograph with a profile of another color space stays gray`(name: String) throws {
        let (reply, bytes) = try worker.render(try TestImages.named(name), side: 24, output: .file(.png))
        #expect(reply.outcome == .rendered)
        let seen = try DecodedImage(bytes)
        let quarters: [(x: Double, y: Double, gray: Int)] = [
            (0.25, 0.25, 76), (0.75, 0.25, 150), (0.25, 0.75, 29), (0.75, 0.75, 255),
        ]
        for quarter in quarters {
            let color = seen.color(quarter.x, quarter.y)
            #expect(color.areNear(quarter.gray, within: 8), "\(name): \(color)")
        }
    }

    @Test func `a profile that describes the colors of an image is applied`() throws {
        let (_, swapped) = try worker.render(try TestImages.named("swapped.jpg"), side: 24, output: .file(.png))
        #expect(try DecodedImage(swapped).showsScene())
        for name in ["linear-gray.jpg", "linear-gray.png"] {
            let (_, bytes) = try worker.render(try TestImages.named(name), side: 24, output: .pixels)
            #expect(bytes.count == 4 * 24 * 24)
            #expect(Array(bytes.prefix(3)).areNear(188, within: 4), "\(name): \(bytes.prefix(4))")
        }
    }

    @Test func `pixels that the first frame of a GIF does not cover are transparent`() throws {
        let (reply, bytes) = try worker.render(
            try TestImages.named("partial.gif"), side: 48, fit: .contain, output: .pixels)
        #expect(reply.outcome == .rendered && reply.width == 48 && reply.height == 32)
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
        let source = try TestImages.named(name)
        let (reply, bytes) = try worker.render(source.dropLast(missing), side: 24)
        #expect(reply.outcome == .rendered)
        #expect(try DecodedImage(bytes).showsScene())
    }

    @Test func `a JPEG with stray bytes between its segments is rendered`() throws {
        var source = try TestImages.named("baseline.jpg")
        let frame = try #require(source.indices.dropLast().first { source[$0] == 0xFF && source[$0 + 1] == 0xC0 })
        source.insert(contentsOf: [0, 0, 0], at: frame)
        let (reply, bytes) = try worker.render(source, side: 24)
        #expect(reply.outcome == .rendered)
        #expect(try DecodedImage(bytes).showsScene())
    }

    @Test(arguments: ["baseline.jpg", "palette.png"])
    func `a large image is rendered within its limit of pixels, also after other images`(first: String) throws {
        let side = 5_000
        let worker = try renderer.worker(mostPixels: UInt32(side * side))
        for name in ["exif-6.jpg", "progressive.jpg", "animated.webp", "plain.avif", "bomb-bits.png", first] {
            _ = try worker.render(try TestImages.named(name), side: 24)
        }
        for _ in 0..<2 {
            #expect(try worker.render(try TestImages.large(side: side), side: 64).reply.outcome == .rendered)
        }
        #expect(try worker.render(try TestImages.large(side: side + 1), side: 64).reply.outcome == .tooManyPixels)
    }

    @Test(arguments: 1...8)
    func `a photograph is turned upright by its EXIF orientation and loses its metadata`(
        turn: Int
    ) throws {
        let source = try TestImages.named("exif-\(turn).jpg")
        #expect(source.holds("Somebody Else"))
        let (reply, bytes) = try worker.render(source, side: 24, fit: .contain)
        #expect(reply.width == 24 && reply.height == 16)
        #expect(try DecodedImage(bytes).showsScene())
        #expect(!bytes.holds("Somebody Else"))
        #expect(!bytes.holds("Exif"))
    }

    @Test(arguments: [ImageFormat.png, .jpeg, .webp])
    func `a rendition has the requested format`(format: ImageFormat) throws {
        let (reply, bytes) = try worker.render(try TestImages.named("alpha.png"), side: 24, output: .file(format))
        #expect(reply.output == .file(format))
        let marks: [ImageFormat: [UInt8]] = [
            .png: [0x89, 0x50], .jpeg: [0xFF, 0xD8], .webp: Array("RIFF".utf8),
        ]
        #expect(bytes.starts(with: marks[format] ?? []))
        let seen = try DecodedImage(bytes)
        #expect(seen.bands == (format == .jpeg ? 3 : 4))
        // Transparent pixels become white in a format without transparency.
        if format == .jpeg { #expect(seen.color(0.75, 0.75).allSatisfy { $0 > 240 }) }
    }

    @Test(arguments: [
        ("baseline.jpg", ImageFormat.jpeg), ("palette.png", .png), ("still.gif", .png), ("lossy.webp", .webp),
        ("plain.avif", .webp),
    ])
    func `a rendition keeps the format of its source if there is an encoder for it`(
        source: String, format: ImageFormat
    ) throws {
        #expect(try worker.render(try TestImages.named(source), side: 16).reply.output == .file(format))
    }

    @Test(arguments: [(ImageFit.cover, 32, 32), (.contain, 48, 32)])
    func `no image is enlarged`(fit: ImageFit, width: Int, height: Int) throws {
        let (_, bytes) = try worker.render(try TestImages.named("palette.png"), side: 500, fit: fit)
        let seen = try DecodedImage(bytes)
        #expect(seen.width == width && seen.height == height)
        #expect(seen.showsScene())
    }

    @Test(arguments: ["palette.png", "alpha.png", "16-bit.png", "gray.jpg", "animated.gif", "plain.avif"])
    func `a rendition in pixels has an alpha channel`(kind: String) throws {
        let (reply, bytes) = try worker.render(try TestImages.named(kind), side: 24, fit: .contain, output: .pixels)
        #expect(reply.outcome == .rendered && reply.output == .pixels)
        #expect(reply.width == 24 && reply.height == 16 && bytes.count == 4 * 24 * 16)
        func pixel(_ column: Int, _ row: Int) -> [UInt8] {
            let start = 4 * (row * 24 + column)
            return Array(bytes[start..<start + 4])
        }
        let (red, white) = (pixel(4, 4), pixel(20, 12))
        if kind != "gray.jpg" { #expect(red[0] > 200 && red[1] < 60 && red[2] < 60, "\(red)") }
        #expect(red[3] == 255)
        #expect(kind == "alpha.png" ? white[3] < 60 : white[3] == 255, "\(white)")
    }

    @Test func `a worker renders many images, and the program exits when the daemon does`() throws {
        let source = try TestImages.named("baseline.jpg")
        for side in 1...32 as ClosedRange<UInt16> {
            #expect(try worker.render(source, side: side).reply.width == side)
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
