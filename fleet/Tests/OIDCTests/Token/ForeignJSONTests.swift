import Foundation
import Testing

@testable import thumbcached_oidc

/// Hostile JSON wherever the program parses JSON from outside.
@Suite struct ForeignJSONTests {
    /// The JSON decoder of FoundationEssentials traps at a depth of 513 and throws from 514 on.
    private static let depths = [63, 64, 65, 511, 512, 513, 514, 600, 10_000]

    /// Returns `{"name": [[[…` with nested arrays or objects, closed or not.
    private static func nested(_ depth: Int, _ name: String) -> [String] {
        let (array, object) = (String(repeating: "[", count: depth), String(repeating: "{\"a\":", count: depth))
        return [
            array, array + String(repeating: "]", count: depth), object,
            object + "1" + String(repeating: "}", count: depth), "{\"\(name)\":" + array,
            "{\"\(name)\":" + array + String(repeating: "]", count: depth) + "}", "{\"\(name)\":" + object,
            "{\"\(name)\":" + object + "1" + String(repeating: "}", count: depth) + "}",
        ]
    }

    private static let numbers = [
        String(repeating: "9", count: 60_000), "0." + String(repeating: "0", count: 60_000) + "1", "1e999999999",
        "-1e999999999", "1e-999999999", "9223372036854775808", "18446744073709551616", "NaN", "Infinity", "0x10", "+1",
        "01", ".5", "1.", "--1", "1e", "",
    ]

    private func encoded(_ text: String) -> String {
        Data(text.utf8).base64EncodedString().replacing("=", with: "").replacing("+", with: "-").replacing(
            "/", with: "_")
    }

    @Test(arguments: depths)
    func `F84: deep nesting in a token's header is an error`(_ depth: Int) {
        for name in ["alg", "kid", "typ", "x5c", "jwk"] {
            for header in Self.nested(depth, name) {
                #expect(throws: LogoutFailure.self) { try CompactToken("\(encoded(header)).e30.eA".utf8) }
            }
        }
    }

    @Test(arguments: depths)
    func `F84: deep nesting in claims is an error`(_ depth: Int) {
        for name in ["iss", "aud", "events", "iat", "sub"] {
            for claims in Self.nested(depth, name) {
                #expect(throws: LogoutFailure.self) { try LogoutClaims(Array(claims.utf8)) }
            }
        }
    }

    @Test(arguments: depths)
    func `F84: deep nesting in a key set is an error`(_ depth: Int) async {
        for answer in Self.nested(depth, "keys") + Self.nested(depth, "x5c").map({ "{\"keys\":[\($0)]}" }) {
            await #expect(throws: KeyFailure.self) {
                try await KeySet(Array(answer.utf8), algorithms: SignatureAlgorithm.allCases)
            }
        }
    }

    @Test(arguments: numbers)
    func `F83: a number of any size is a valid time or an error`(_ number: String) {
        for (issued, expires) in [(number, "1100"), ("1000", number), (number, number)] {
            let claims = """
                {"iss": "\(TokenRules.ofTests.issuer)", "aud": "thumbnails", "iat": \(issued), "exp": \(expires),
                 "jti": "1", "sub": "a", "events": {"\(LogoutClaims.event)": {}}}
                """
            do throws(LogoutFailure) {
                let end = try TokenRules.ofTests.check(try LogoutClaims(Array(claims.utf8)), at: 1_000)
                // Only a token issued now is valid, for no longer than its maximum age and the skew.
                #expect(issued == "1000" && 1_000...1_360 ~= end, "\(number.prefix(40))")
            } catch {
                #expect(!error.description.isEmpty)
            }
        }
    }
}
