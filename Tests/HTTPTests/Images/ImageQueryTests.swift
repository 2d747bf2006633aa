import Testing

@testable import thumbcached_http

@Suite struct ImageQueryTests {
    @Test(
        arguments: [
            ("", nil), ("s=40", 40), ("size=40", 40), ("s=40&size=50", 40), ("s=&s=40", nil), ("s=", nil),
            ("s=-1", nil), ("s=+5", nil),
            ("s=0x10", nil), ("s=4.5", nil), ("s=99999999999999999999", Int.max), ("s=%34%30", 40), ("S=40", nil),
        ] as [(String, Int?)])
    func `the size is the first number of s or size`(text: String, size: Int?) throws {
        #expect(try #require(ImageQuery(text)).size == size)
    }

    @Test func `each parameter has a short and a long form`() throws {
        let short = try #require(ImageQuery("s=1&d=404&f=y&r=pg&name=John+Doe&initials=J%44"))
        #expect(short == ImageQuery("size=1&default=404&forcedefault=Y&rating=x&name=John%20Doe&initials=JD"))
        #expect(short.defaultImage == "404" && short.isForced && short.name == "John Doe" && short.initials == "JD")
    }

    @Test(arguments: ["f=n", "f=1", "f", "f=", "forcedefault=yes", "f=n&f=y"])
    func `only y forces the default image`(text: String) throws {
        #expect(try !#require(ImageQuery(text)).isForced)
    }

    @Test func `a repeated part of a signature is missing`() throws {
        let query = try #require(ImageQuery("expires=1&signature=a"))
        #expect(query.expires == "1" && query.signature == "a")
        #expect(try #require(ImageQuery("expires=1&expires=1&signature=a")).expires == nil)
        #expect(try #require(ImageQuery("expires=1&signature=a&signature=a")).signature == nil)
    }

    @Test(arguments: ["s=%", "d=%4", "name=%zz"])
    func `an invalid escape is an error, unless the parameter is unknown`(text: String) {
        #expect(ImageQuery(text) == nil)
        #expect(ImageQuery("x\(text)") != nil)
    }
}
