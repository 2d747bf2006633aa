import CacheCore
import Testing

@testable import Origins

@Suite struct WebURLTests {
    @Test(arguments: [
        ("http://example.org", "http://example.org/"),
        ("HTTP://Example.ORG:80/A", "http://example.org/A"),
        ("https://example.org:443/", "https://example.org/"),
        ("https://example.org:80/", "https://example.org:80/"),
        ("https://example.org:0443/", "https://example.org/"),
        ("https://example.org./a", "https://example.org/a"),
        ("https://example.org/a#fragment", "https://example.org/a"),
        ("https://example.org?a=b", "https://example.org/?a=b"),
        ("https://example.org/a?", "https://example.org/a"),
        ("https://example.org/a/../b/./c/..", "https://example.org/b/"),
        ("https://example.org/a/%2e%2E/b/%2E/c", "https://example.org/b/c"),
        ("https://example.org/../../a", "https://example.org/a"),
        ("https://example.org/a//b/", "https://example.org/a//b/"),
        ("https://example.org/%7euser/%41%2f%3a?q=%7e%2f%3d", "https://example.org/~user/A%2F%3A?q=~%2F%3D"),
        ("https://example.org/\"<>^`{|}", "https://example.org/%22%3C%3E%5E%60%7B%7C%7D"),
        ("https://example.org/gr\u{fc}n", "https://example.org/gr%C3%BCn"),
        ("https://example.org/a:b@c?d@e", "https://example.org/a:b@c?d@e"),
        ("http://[::1]:8080/", "http://[::1]:8080/"),
        ("http://[2001:DB8:0:0:0:0:0:1]/", "http://[2001:db8::1]/"),
        ("http://[::ffff:127.0.0.1]/", "http://[::ffff:127.0.0.1]/"),
        ("http://under_score.example.org/", "http://under_score.example.org/"),
        ("http://avatars1/", "http://avatars1/"),
        ("https://xn--bcher-kva.example/", "https://xn--bcher-kva.example/"),
        ("http://127.0.0.1./", "http://127.0.0.1/"),
    ])
    func `F57: URLs are normalized, and normalization is idempotent`(text: String, expected: String) throws {
        let url = try WebURL(text)
        #expect(url.string == expected)
        #expect(try WebURL(url.string) == url)
    }

    @Test(arguments: [
        "", "/", "//example.org/", "example.org/a", "http:", "http://", "http:///", "http://:80/", "http://?a",
        "http://example.org/ a", "http://example.org/\u{7f}", "http://exa\nmple.org/", "http://example.org/\t",
        "http://example.org/\r\nX: y", "http://example.org:0/", "http://example.org:65536/", "http://example.org:x/",
        "http://example.org:-1/", "http://example.org/%", "http://example.org/%4", "http://example.org/%zz",
        "http://a..b/", "http://.a/", "http://a../", "http://ex%00ample.org/", "http://b\u{fc}cher.example/",
        "http://[::1/", "http://[::g]/", "http://[fe80::1%25lo]/", "http://[127.0.0.1]/", "http://a,b/", "http://a*b/",
        "http://0x7f.1./", "http://1.2.3.4.5/", "http://example.0x1/", "http://256.256.256.256/",
        // U+212A, the Kelvin sign, whose lower case is k.
        "http://\u{212A}.example/",
        // F32: texts that other parsers accept as an IPv4 address, with extra or missing slashes, or decode.
        "http://2130706433/", "http://0x7f000001/", "http://0x7f.1/", "http://017700000001/", "http://0177.0.0.1/",
        "http://127.1/", "http:/example.org/", "http:///example.org/", "http:example.org", "http://ex%61mple.org/",
        "http://example.org:80:80/", "http://[::1]x/", "http://[::1]:x/", "h ttp://example.org/", "://example.org/",
    ])
    func `F32: an invalid URL is rejected`(text: String) {
        #expect {
            try WebURL(text)
        } throws: { error in
            if case .invalid(let reason)? = error as? CacheFailure { !reason.isEmpty } else { false }
        }
    }

    @Test(arguments: [
        "http://user@example.org/", "http://user:password@example.org/", "http://:@example.org/",
        "http://cdn.example.org@evil.example/", "https://cdn.example.org\\@evil.example/", "http:\\\\example.org/",
        "http://example.org/a\\..\\b", "file:///etc/passwd", "ftp://example.org/", "gopher://example.org/",
        "dict://example.org/", "ws://example.org/", "file://localhost/etc/passwd",
    ])
    func `F30, F57: a deceptive URL or another scheme is denied`(text: String) {
        #expect {
            try WebURL(text)
        } throws: { error in
            if case .denied(let reason)? = error as? CacheFailure { !reason.isEmpty } else { false }
        }
    }

    @Test func `a URL has at most 2048 bytes after encoding`() throws {
        let start = "http://example.org/"
        let room = WebURL.longest - start.utf8.count
        #expect(try WebURL(start + String(repeating: "a", count: room)).string.utf8.count == 2048)
        #expect(throws: CacheFailure.self) { try WebURL(start + String(repeating: "a", count: room + 1)) }
        #expect(throws: CacheFailure.self) { try WebURL(start + String(repeating: "\"", count: room / 2)) }
    }
}
