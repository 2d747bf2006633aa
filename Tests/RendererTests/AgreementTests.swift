import Foundation
import HelperProtocol
import ImageOptions
import Testing

/// Comparison of renditions with those of vipsthumbnail, the program of libvips.
@Suite(.timeLimit(.minutes(2))) struct AgreementTests {
    /// Photographs with EXIF orientation, drawings, and images with transparency or a palette.
    private static let sources = [
        "RendererTests/Images/baseline.jpg", "RendererTests/Images/exif-6.jpg",
        "RendererTests/Images/progressive.jpg", "RendererTests/Images/palette.png",
        "RendererTests/Images/16-bit.png", "RendererTests/Images/lossless.webp",
        "../examples/images/bob.png", "../examples/images/grace.png", "../examples/images/ivan.png",
    ]

    @Test(arguments: sources, [ImageFit.cover, .contain])
    func `sizes agree with those of vipsthumbnail at 40 dB or better`(source: String, fit: ImageFit) throws {
        let tests = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        let path = tests.appending(path: source).standardizedFileURL.path
        let renderer = try Renderer()
        let worker = try renderer.worker()
        let bytes = Array(try Data(contentsOf: URL(filePath: path)))
        for side in [16, 24, 32] as [UInt16] {
            let (reply, made) = try worker.render(bytes, side: side, fit: fit, output: .file(.png))
            try #require(reply.outcome == .rendered)
            let seen = try DecodedImage(made)
            let due = try DecodedImage(try thumbnail(of: path, side: side, fit: fit))
            #expect((seen.width, seen.height) == (due.width, due.height))
            let quality = seen.peakSignalToNoise(due)
            #expect(quality >= 40, "\(source), \(side) pixels: \(quality) dB")
        }
    }

    /// A lossless rendition by vipsthumbnail(1).
    private func thumbnail(of path: String, side: UInt16, fit: ImageFit) throws -> [UInt8] {
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

extension DecodedImage {
    /// Peak signal-to-noise ratio in decibels over red, green and blue; infinite for equal images.
    func peakSignalToNoise(_ other: DecodedImage) -> Double {
        let errors = zip(colors, other.colors).map { one, two in
            let difference = Double(one) - Double(two)
            return difference * difference
        }
        let mean = errors.reduce(0, +) / Double(max(1, errors.count))
        return mean == 0 ? .infinity : 10 * log10(255 * 255 / mean)
    }
}
