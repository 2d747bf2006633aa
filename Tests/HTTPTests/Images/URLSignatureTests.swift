import LinuxSupport
import Testing

@testable import thumbcached_http

@Suite struct URLSignatureTests {
    private static let key = "0123456789abcdef0123456789abcdef"
    private static let path = "/u/alice%40example.org/avatar/0bc83cb571cd1c50ba6f3e8a78ef1346"

    /// Signs as an application does.
    static func sign(_ path: String, expires: Int64, key: String = key) -> String {
        Hex.text(SigningKeys.code(Array("\(path)?expires=\(expires)".utf8), Secret(key.utf8)))
    }

    private func keys(_ text: String = key) throws -> SigningKeys { try SigningKeys(Array(text.utf8)) }

    private func left(
        _ keys: SigningKeys, path: String = path, expires: String = "1000", signature: String, now: Int64 = 900
    ) throws -> Int64? {
        let query = try #require(ImageQuery("expires=\(expires)&signature=\(signature)&s=40"))
        return keys.secondsLeft(path: path[...], query: query, now: now)
    }

    /// The value was computed with `openssl dgst -sha256 -hmac`.
    @Test func `the signature is the HMAC-SHA-256 of path and expiry`() throws {
        #expect(
            Self.sign("/u/a/avatar/0bc83cb571cd1c50ba6f3e8a78ef1346", expires: 1_000)
                == "ae2267b4748a40058e83874a566a227f84eabdef41a44b8618d862ee638985bc")
    }

    @Test func `a signed URL is valid until it expires`() throws {
        let keys = try keys()
        let signature = Self.sign(Self.path, expires: 1_000)
        #expect(try left(keys, signature: signature) == 100)
        #expect(try left(keys, signature: signature.uppercased()) == 100)
        #expect(try left(keys, signature: signature, now: 999) == 1)
        #expect(try left(keys, signature: signature, now: 1_000) == nil)
        #expect(try left(keys, signature: signature, now: 1_001) == nil)
    }

    @Test func `F87: no other path, expiry, key or signature is valid`() throws {
        let keys = try keys()
        let signature = Self.sign(Self.path, expires: 1_000)
        for path in [
            "/u/alice@example.org/avatar/0bc83cb571cd1c50ba6f3e8a78ef1346", Self.path + ".png", Self.path + "/",
            Self.path.replacing("alice", with: "bob"), "",
        ] {
            #expect(try left(keys, path: path, signature: signature) == nil, "\(path)")
        }
        for expires in [
            "1001", "01000", "+1000", "1000%20", "", "-1", "0", "1e3", "9999999999999", "1000&expires=1000",
        ] {
            #expect(try left(keys, expires: expires, signature: signature) == nil, "\(expires)")
        }
        for wrong in [
            "", String(signature.dropLast()), signature + "0", String(repeating: "0", count: 64),
            "g" + signature.dropFirst(), signature + "&signature=" + signature,
            (signature.hasPrefix("0") ? "1" : "0") + signature.dropFirst(),
        ] {
            #expect(try left(keys, signature: wrong) == nil, "\(wrong)")
        }
        let other = try self.keys(String(Self.key.reversed()))
        #expect(try left(other, signature: signature) == nil)
        #expect(keys.secondsLeft(path: Self.path[...], query: try #require(ImageQuery("")), now: 900) == nil)
    }

    @Test func `each of several keys is valid`() throws {
        let other = String(Self.key.reversed())
        let keys = try keys("\(other)\n\(Self.key)\n")
        for key in [Self.key, other] {
            #expect(try left(keys, signature: Self.sign(Self.path, expires: 1_000, key: key)) == 100)
        }
    }

    @Test(arguments: [
        ("", "has 0 keys; write 1 to 4, one a line"), ("\n\n", "has 0 keys; write 1 to 4, one a line"),
        (String(repeating: key + "\n", count: 5), "has 5 keys; write 1 to 4, one a line"),
        ("short\n", "has a key of less than 32 characters; `openssl rand -hex 32` makes one"),
        (key + "\nshort", "has a key of less than 32 characters; `openssl rand -hex 32` makes one"),
    ])
    func `invalid keys are rejected without showing them`(text: String, message: String) {
        let failure = #expect(throws: SigningKeys.Failure.self) { try keys(text) }
        #expect(failure?.description == message)
    }
}
