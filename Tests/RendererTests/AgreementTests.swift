import Foundation
import HelperProtocol
import Testing

/// What is made looks as what the program of libvips itself makes, which photographers and web shops use.
@Suite(.timeLimit(.minutes(2))) struct AgreementTests {
    /// Photographs turned by EXIF, drawings, and what has transparency or a palette.
    private static let sources = [
        "RendererTests/Pictures/baseline.jpg", "RendererTests/Pictures/exif-6.jpg",
        "RendererTests/Pictures/progressive.jpg", "RendererTests/Pictures/palette.png",
        "RendererTests/Pictures/16-bit.png", "RendererTests/Pictures/lossless.webp",
        "../examples/pictures/bob.png", "../examples/pictures/grace.png", "../examples/pictures/ivan.png",
    ]

    @Test(arguments: sources, [PictureFit.cover, .contain])
    func `sizes agree with those of vipsthumbnail at 40 dB or better`(source: String, fit: PictureFit) throws {
        let tests = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        let path = tests.appending(path: source).standardizedFileURL.path
        let renderer = try Renderer()
        let worker = try renderer.worker()
        let bytes = Array(try Data(contentsOf: URL(filePath: path)))
        for side in [16, 24, 32] as [UInt16] {
            let (answer, made) = try worker.render(bytes, side: side, fit: fit, format: .png)
            try #require(answer.outcome == .rendered)
            let seen = try SeenPicture(made)
            let due = try SeenPicture(try thumbnail(of: path, side: side, fit: fit))
            #expect((seen.width, seen.height) == (due.width, due.height))
            let quality = seen.peakSignalToNoise(due)
            #expect(quality >= 40, "\(source), \(side) pixels: \(quality) dB")
        }
    }

    /// A picture made by vipsthumbnail(1), without loss.
    private func thumbnail(of path: String, side: UInt16, fit: PictureFit) throws -> [UInt8] {
        let output = FileManager.default.temporaryDirectory.appending(path: "\(UUID().uuidString).png")
        defer { expectSuccess { try FileManager.default.removeItem(at: output) } }
        let program = Process()
        program.executableURL = URL(filePath: "/usr/bin/vipsthumbnail")
        let crop = fit == .cover ? ["--smartcrop", "centre"] : []
        program.arguments =
            [path, "--size", "\(side)x\(side)>"] + crop + ["-o", output.path]
        try program.run()
        program.waitUntilExit()
        try #require(program.terminationStatus == 0)
        return Array(try Data(contentsOf: output))
    }

    private func expectSuccess(_ body: () throws -> Void) {
        do { try body() } catch { Issue.record(error) }
    }
}

extension SeenPicture {
    /// In decibels, over red, green and blue; infinite for the same picture.
    func peakSignalToNoise(_ other: SeenPicture) -> Double {
        let errors = zip(colours, other.colours).map { one, two in
            let difference = Double(one) - Double(two)
            return difference * difference
        }
        let mean = errors.reduce(0, +) / Double(max(1, errors.count))
        return mean == 0 ? .infinity : 10 * log10(255 * 255 / mean)
    }
}
