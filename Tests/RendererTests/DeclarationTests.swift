import CRenderer
import HelperProtocol
import ImageOptions
import Testing

/// The declarations of renderer.h and those of Swift agree.
@Suite struct DeclarationTests {
    @Test func `fit and output have the same numbers in C and in Swift`() {
        let fits = ImageFit.allCases.map { fit in
            switch fit {
            case .cover: (fit.byte, CRENDERER_COVER.rawValue)
            case .contain: (fit.byte, CRENDERER_CONTAIN.rawValue)
            }
        }
        for (swift, c) in fits { #expect(UInt32(swift) == c) }
        let formats = ImageFormat.allCases.map { format in
            switch format {
            case .source: (format.byte, CRENDERER_SOURCE.rawValue)
            case .png: (format.byte, CRENDERER_PNG.rawValue)
            case .jpeg: (format.byte, CRENDERER_JPEG.rawValue)
            case .webp: (format.byte, CRENDERER_WEBP.rawValue)
            }
        }
        for (swift, c) in formats { #expect(UInt32(swift) == c) }
        #expect(UInt32(RenderOutput.pixels.rawValue) == CRENDERER_PIXELS.rawValue)
    }

    @Test func `every byte is read as the value that wrote it`() {
        for fit in ImageFit.allCases { #expect(ImageFit(byte: fit.byte) == fit) }
        for output in ImageFormat.allCases.map({ RenderOutput.file($0) }) + [.pixels] {
            #expect(RenderOutput(rawValue: output.rawValue) == output)
        }
        #expect(ImageFit(byte: 2) == nil && RenderOutput(rawValue: 5) == nil)
    }
}
