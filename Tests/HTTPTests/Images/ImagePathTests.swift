import Testing
import Thumbcache

@testable import thumbcached_http

/// Paths of images, and what must not become one.
@Suite struct ImagePathTests {
    private static let md5 = "0bc83cb571cd1c50ba6f3e8a78ef1346"
    private static let sha256 = "973dfe463ec85785f5f95af5ba3906eedb2d931c24e69824a89ea65dba4e813b"

    @Test(
        arguments: [
            ("/avatar/\(md5)", "site"), ("/avatar/\(sha256)", "site"), ("/avatar/\(md5).jpg", "site"),
            ("/avatar/\(md5).PNG", "site"), ("/avatar/\(md5.uppercased())", "site"),
            ("/u/alice/avatar/\(md5)", "alice"), ("/u/alice%40example.org/avatar/\(md5).webp", "alice@example.org"),
            ("/u/alice@example.org/avatar/\(md5)", "alice@example.org"), ("/u/a+b/avatar/\(md5)", "a+b"),
            ("/u/a%2Bb/avatar/\(md5)", "a+b"), ("/u/%C3%B6/avatar/\(md5)", "\u{f6}"), ("/u/a%20b/avatar/\(md5)", "a b"),
            // Decoded once.
            ("/u/a%2541/avatar/\(md5)", "a%41"), ("/u/a;b/avatar/\(md5)", "a;b"), ("/u/avatar/avatar/\(md5)", "avatar"),
        ] as [(String, String)])
    func `a path names a user and a hash`(path: String, owner: String) throws {
        let image = try #require(ImagePath(path[...]))
        switch image.owner {
        case .site: #expect(owner == "site")
        case .user(let user): #expect(user == ThumbcacheID(owner))
        }
        #expect([Self.md5, Self.sha256].contains(image.hash))
    }

    @Test(
        arguments: [
            "", "/", "/avatar", "/avatar/", "/avatar/x", "/avatar/\(md5)0", "/avatar/\(md5.dropLast())",
            "avatar/\(md5)",
            "x/avatar/\(md5)", "/avatar/\(md5)/", "//avatar/\(md5)", "/avatar//\(md5)", "/Avatar/\(md5)",
            "/avatar/\(md5).", "/avatar/\(md5).exe", "/avatar/\(md5).jpg.png", "/avatar/\(md5)%00.jpg",
            "/avatar/%30\(md5.dropFirst())", "/avatar/g\(md5.dropFirst())", "/avatar/../avatar/\(md5)",
            "/u/avatar/\(md5)", "/u//avatar/\(md5)", "/u/*/avatar/\(md5)", "/u/%2A/avatar/\(md5)",
            "/u/./avatar/\(md5)", "/u/../avatar/\(md5)", "/u/%2e%2E/avatar/\(md5)", "/u/alice/x/\(md5)",
            // A proxy that decodes the path sees another user.
            "/u/alice%2Favatar/\(md5)", "/u/alice%2F..%2Fbob/avatar/\(md5)", "/u/alice%5c..%5Cbob/avatar/\(md5)",
            "/u/bob/../alice/avatar/\(md5)", "/u/alice/avatar/\(md5)/../../../bob/avatar/\(md5)",
            "/u/alice%00/avatar/\(md5)", "/u/alice%0d%0aX:y/avatar/\(md5)", "/u/alice%7f/avatar/\(md5)",
            "/u/alice%/avatar/\(md5)", "/u/alice%4/avatar/\(md5)", "/u/alice%zz/avatar/\(md5)",
            "/u/\u{f6}/avatar/\(md5)", "/u/al ice/avatar/\(md5)",
            "/u/\(String(repeating: "a", count: 513))/avatar/\(md5)",
        ] as [String])
    func `F87: any other path is unknown`(path: String) { #expect(ImagePath(path[...]) == nil) }

    @Test func `a user has at most 512 bytes, counted after decoding`() {
        let most = String(repeating: "%61", count: 512)
        #expect(ImagePath("/u/\(most)/avatar/\(Self.md5)") != nil)
        #expect(ImagePath("/u/\(most)%61/avatar/\(Self.md5)") == nil)
    }
}
