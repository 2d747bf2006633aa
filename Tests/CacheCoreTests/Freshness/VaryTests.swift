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
    func `fields that are the same in all requests of the daemon always match`(value: String) {
        #expect(!Vary(value).matchesNothing)
    }

    @Test(
        arguments: [
            ("Authorization", true), ("accept,AUTHORIZATION", true), ("Accept , authorization , Foo", true),
            ("*, authorization", true), ("authorization foo", true), ("\"x, Authorization", true), ("Accept", false),
            ("Proxy-Authorization", false), ("authorization-x", false), ("\"authorization\"", false), ("*", false),
        ])
    func `Authorization is found in any case and among invalid members`(value: String, isNamed: Bool) {
        #expect(Vary(value).namesAuthorization == isNamed)
    }

    @Test func `a response without Vary matches every request`() {
        #expect(!Vary(nil).matchesNothing)
    }
}
