import Testing

@testable import CacheCore

/// RFC 9111 section 4.1.
@Suite struct VaryTests {
    @Test(arguments: [
        "*", " * ", "*, *", ", *", "*, Foo", "Foo, *", "Accept,*", "Accept , * , Foo", "foo bar, *",
    ])
    func `a star matches no request`(value: String) {
        #expect(Vary(value).matchesNothing)
    }

    @Test(arguments: [
        "", ",", "Accept", "accept-encoding, User-Agent", "Authorization", "Foo, Bar, Baz", "**", "*foo", "x*",
        "\"*\"", "foo *",
    ])
    func `the fields of our own requests are always the same, so whatever else it names matches`(value: String) {
        #expect(!Vary(value).matchesNothing)
    }

    @Test(
        arguments: [
            ("Authorization", true), ("accept,AUTHORIZATION", true), ("Accept , authorization , Foo", true),
            ("*, authorization", true), ("authorization foo", true), ("\"x, Authorization", true), ("Accept", false),
            ("Proxy-Authorization", false), ("authorization-x", false), ("\"authorization\"", false), ("*", false),
        ])
    func `it names Authorization in any case, also among what cannot be read`(value: String, isNamed: Bool) {
        #expect(Vary(value).namesAuthorization == isNamed)
    }

    @Test func `an answer without it is for every request`() {
        #expect(!Vary(nil).matchesNothing)
    }
}
