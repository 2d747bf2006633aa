import Testing

@testable import ImageFetcher
@testable import Origins
@testable import ThumbnailCache

/// URLs as libcurl takes them apart: those that redirects name, and all others a second time.
@Suite struct CurlURLTests {
    @Test(arguments: [
        ("b", "https://example.org/a/b"), ("/b", "https://example.org/b"), ("../b", "https://example.org/b"),
        ("?x=1", "https://example.org/a/?x=1"), ("//other.example/b", "https://other.example/b"),
        ("http://other.example", "http://other.example/"), ("../../../b", "https://example.org/b"),
        ("%2e%2e/b", "https://example.org/b"), ("HTTPS://Example.org:443", "https://example.org/"),
        ("b#c", "https://example.org/a/b"),
    ])
    func `a redirect may be relative to where it came from`(location: String, expected: String) throws {
        let base = try WebURL("https://example.org/a/")
        #expect(try WebURL(asCurl: location, relativeTo: base).string == expected)
    }

    @Test(arguments: [
        "http://2130706433/", "http://0x7f000001/", "http://0x7f.1/", "http://017700000001/", "http://0177.0.0.1/",
        "http://127.1/", "http://127.0.0.1./",
    ])
    func `F32: what stands for an IPv4 address in a redirect is written as one`(text: String) throws {
        #expect(try WebURL(asCurl: text).string == "http://127.0.0.1/")
    }

    @Test(arguments: [
        "http://example.org", "HTTP://Example.ORG:80/A", "https://example.org:0443/", "https://example.org./a",
        "https://example.org/a#fragment", "https://example.org?a=b/c", "https://example.org/a/../b/./c/..",
        "https://example.org/%7euser/%41%2f%3a?q=%7e%2f%3d", "https://example.org/\"<>^`{|}",
        "https://example.org/gr\u{fc}n", "https://example.org/a:b@c?d@e", "http://[::1]:8080/",
        "http://[2001:DB8:0:0:0:0:0:1]/", "http://under_score.example.org/", "http://example.org:/",
        "http://127.0.0.1./", "https://example.org/a?b#c?d", "https://example.org//a",
    ])
    func `F57: what our parser takes apart libcurl takes apart the same`(text: String) throws {
        #expect(try WebURL(asCurl: text) == WebURL(text))
    }
}
