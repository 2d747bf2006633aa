import Testing

@testable import ThumbnailCache

/// RFC 9111 section 4.1.
@Suite struct VaryTests {
    @Test(arguments: [
        "*", " * ", "*, *", ", *", "*, Foo", "Foo, *", "Accept,*", "Accept , * , Foo", "foo bar, *",
    ])
    func `a star matches no request`(value: String) {
        #expect(Vary.matchesNothing(value))
    }

    @Test(arguments: [
        "", ",", "Accept", "accept-encoding, User-Agent", "Authorization", "Foo, Bar, Baz", "**", "*foo", "x*",
        "\"*\"", "foo *",
    ])
    func `the fields of our own requests are always the same, so whatever else it names matches`(value: String) {
        #expect(!Vary.matchesNothing(value))
    }

    @Test func `an answer without it is for every request`() {
        #expect(!Vary.matchesNothing(nil))
    }
}
