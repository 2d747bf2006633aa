import Testing

@testable import CacheCore
@testable import ImageFetcher
@testable import Origins

/// URLs as libcurl parses them: those of redirects, and all others a second time.
@Suite struct CurlURLTests {
    @Test(arguments: [
        ("b", "https://example.org/a/b"), ("/b", "https://example.org/b"), ("../b", "https://example.org/b"),
        ("?x=1", "https://example.org/a/?x=1"), ("//other.example/b", "https://other.example/b"),
        ("http://other.example", "http://other.example/"), ("../../../b", "https://example.org/b"),
        ("%2e%2e/b", "https://example.org/b"), ("HTTPS://Example.org:443", "https://example.org/"),
        ("b#c", "https://example.org/a/b"),
    ])
    func `a redirect may be relative to its URL`(location: String, expected: String) throws {
        let base = try WebURL("https://example.org/a/")
        #expect(try WebURL(asCurl: location, relativeTo: base).string == expected)
    }

    @Test(arguments: [
        "http://2130706433/", "http://0x7f000001/", "http://0x7f.1/", "http://017700000001/", "http://0177.0.0.1/",
        "http://127.1/", "http://127.0.0.1./",
    ])
    func `F32: other spellings of an IPv4 address in a redirect are normalized`(text: String) throws {
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
    func `F57: the strict parser and libcurl parse URLs alike`(text: String) throws {
        #expect(try WebURL(asCurl: text) == WebURL(text))
    }

    @Test
    func `F32, F57: hostile URLs that the strict parser accepts are the same to libcurl, also normalized`() {
        var texts = HostileURLs.all(8080)
        for host in HostileURLs.hosts + Self.hosts {
            texts += Self.ports.map { "http://\(host)\($0)/a" }
        }
        for host in Self.hosts {
            for start in Self.starts {
                texts += Self.users.map { "\(start)\($0)\(host)" }
            }
            for end in Self.ends {
                texts += [":8080", ":", ""].map { "https://\(host)\($0)\(end)" }
            }
        }
        var accepted = 0
        for text in texts {
            guard let url = try? WebURL(text) else { continue }
            accepted += 1
            let again = [try? WebURL(asCurl: text), try? WebURL(url.string), try? WebURL(asCurl: url.string)]
            #expect(again == [url, url, url], "\(text)")
        }
        // Both valid and invalid URLs occur.
        #expect(accepted > 700 && texts.count - accepted > 1_500, "\(accepted) of \(texts.count)")
    }

    private static let starts = [
        "http://", "HTTPS://", "http:/", "http:///", "http:", "//", "", "ftp://", "http\u{17F}://", "http//:",
    ]
    private static let users = ["", "@", ":@", "u@", "u:p@", "a@b@", "[::1]@", "a%40"]
    private static let hosts = [
        "", "example.org", "EXAMPLE.Org.", "a_b.example", "xn--bcher-kva.example", "\u{212A}.example", "a..b", "a~b",
        "a;b", "a'b", "a!b", "a]b", "1.2.3.4", "1.2.3.4.", "1.2.3.", "1.2.3.04", "01.2.3.4", "1.2.3.4.5", "1.-2",
        "+1.2.3.4",
        "-1", "1e1", "0x", "0x.1", "0xg", "4294967296", "18446744073709551617", "a.1", "1.a", "[2001:DB8::1]", "[::1",
        "[::1]]",
        "[[::1]]", "[]", "[:]", "[::]", "[1.2.3.4]", "[::1.2.3.4]", "[v1.a]", "[::1%25]", "[::1\u{301}]", "a\u{301}",
        "\u{FF0E}a",
    ]
    private static let ports = [
        "", ":", ":80", ":443", ":0080", ":00000000000000000000000080", ":0", ":00", ":65535", ":65536", ":+80", ":-80",
        ":8a", ":a", ":80:80", "::80", ":99999999999999999999", ":\u{661}", ":%38%30",
    ]
    private static let ends = [
        "", "/", "?", "#", "?#", "#?", "/..", "/%2e%2E/a", "//a", "///", "?a=b/c", "/a#b?c", "#?/", "/:80@x",
        "?@evil.example/",
        "#@evil.example", "/%", "/%4", "?%", "/a?b?c#d#e", "/gr\u{fc}n", "/a;b/.;/..", ";x", "/[", "/]?[", "/a%00b",
        "/.", "/...",
        "/e\u{301}/\u{301}..", "?\u{301}#\u{301}", "/\u{301}?a",
    ]
}
