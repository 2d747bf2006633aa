import CacheCore
import NIOCore
import Testing

@testable import ImageFetcher

/// libcurl's text of LDAP entries.
@Suite struct DirectoryEntryReaderTests {
    private enum Result: Equatable {
        case image([UInt8])
        case missing
        case unusable(FetchFailure.Kind)
        case incomplete
    }

    private func read(
        _ text: String, attribute: String = "jpegPhoto", limit: Int = 1_000, pieces: Int = .max, isWhole: Bool = true
    ) -> Result {
        var reader = DirectoryEntryReader(host: "h", attribute: attribute, framing: .bare, limit: limit)
        var rest = Array(text.utf8)[...]
        while !rest.isEmpty, Array(rest.prefix(pieces)).withUnsafeBytes({ reader.receive($0) }) {
            rest = rest.dropFirst(pieces)
        }
        return switch reader.verdict(isWhole: isWhole) {
        case .image(let image)?: .image(Array(image.image.readableBytesView))
        case .missing?: .missing
        case .unusable(let failure)?: .unusable(failure.kind)
        case nil: .incomplete
        }
    }

    @Test(arguments: [1, 2, 3, 7, 1_000])
    func `the first value of the attribute is the image, in pieces of any size`(pieces: Int) {
        let entry = "DN: cn=bob,dc=example,dc=org\n\tjpegPhoto:: AAEC/v8=\n\tjpegPhoto:: BBBB\n\n\n"
        #expect(read(entry, pieces: pieces) == .image([0, 1, 2, 0xFE, 0xFF]))
        #expect(read(entry, pieces: pieces, isWhole: false) == .image([0, 1, 2, 0xFE, 0xFF]))
        let others = "DN: cn=a\n\n\nDN: cn=b\n\tmail: AAAA\n\n\tJPEGphoto:: +/+/\n\n"
        #expect(read(others, pieces: pieces) == .image([0xFB, 0xFF, 0xBF]))
        #expect(read("DN: a\n\tthumbnailPhoto: text\n\n\n", attribute: "thumbnailPhoto") == .image(Array("text".utf8)))
    }

    @Test(arguments: [
        "", "DN: cn=bob\n\n", "DN: cn=bob\n\tjpegPhoto:\n\n\n", "DN: cn=bob\n\tjpegPhoto:: \n\n\n",
        "DN: cn=bob\n\tjpegPhoto::\n\n\n", "DN: cn=bob\n\tjpegPhoto: \n\n\n", "DN: jpegPhoto:: AAAA\n\n",
        "DN: cn=bob\n\tjpegPhotos:: AAAA\n\tjpegPhot:: AAAA\n\n", "DN: cn=bob\n\tjpegPhoto;x:: AAAA\n\n",
        "DN: cn=bob\njpegPhoto:: AAAA\n\n", "DN: cn=bob\n\t\tjpegPhoto:: AAAA\n\n",
    ])
    func `entries without a value have no image`(text: String) {
        #expect(read(text) == .missing)
        #expect(read(text, pieces: 1) == .missing)
        #expect(read(text, isWhole: false) == .incomplete)
    }

    @Test(arguments: ["AA!A", "AA A", "AA=A", "AAAA\r", "\u{e4}"])
    func `F34: a value that is not Base64 is rejected`(value: String) {
        #expect(read("DN: a\n\tjpegPhoto:: \(value)\n\n") == .unusable(.badImage))
    }

    @Test func `F34, F35: a value is limited, and must be complete`() {
        let value = String(repeating: "AAAA", count: 10)
        #expect(read("\tjpegPhoto:: \(value)\n", limit: 30) == .image([UInt8](repeating: 0, count: 30)))
        #expect(read("\tjpegPhoto:: \(value)\n", limit: 29) == .unusable(.tooLarge))
        #expect(read("\tjpegPhoto:: \(value)", limit: 29, pieces: 1, isWhole: false) == .unusable(.tooLarge))
        #expect(read("\tjpegPhoto:: \(value)") == .unusable(.origin))
        #expect(read("\tjpegPhoto:: \(value)", isWhole: false) == .incomplete)
    }

    @Test func `F35: the text without an image is limited`() {
        let name = String(repeating: "x", count: DirectoryEntryReader.longestRest)
        #expect(read("\(name)\n\tjpegPhoto:: AAAA\n") == .unusable(.origin))
        #expect(read("\(name)", pieces: 1) == .missing)
    }
}
