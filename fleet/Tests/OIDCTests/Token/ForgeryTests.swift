import Testing

@testable import thumbcached_oidc

/// Tokens made by another implementation: OpenID Connect Back-Channel Logout 1.0, sections 2.4 and 2.6.
@Suite struct ForgeryTests {
    private func verifier(_ tokens: ForeignTokens, _ rules: TokenRules = .ofTests) -> TokenVerifier {
        let keys = KeyStore(
            FakeKeySource(.success(tokens.jwks)), algorithms: rules.algorithms, times: KeyTimes(pause: 0), log: silent,
            now: { 0 })
        return TokenVerifier(rules: rules, keys: keys)
    }

    @Test func `valid tokens of another implementation are accepted`() async throws {
        let tokens = try ForeignTokens.made.get()
        let verifier = verifier(tokens)
        #expect(tokens.good.count >= 15)
        for (name, token) in tokens.good {
            do {
                let token = try await verifier.verify(token.utf8, at: ForeignTokens.now)
                #expect(token.subject == "alice", "\(name)")
                #expect(token.session == (name == "without a sid" ? nil : "desk-1"), "\(name)")
            } catch {
                Issue.record("\(name): \(error)")
            }
        }
        let withoutSubject = try #require(tokens.other["without a sub"])
        #expect(try await verifier.verify(withoutSubject.utf8, at: ForeignTokens.now).subject == nil)
    }

    @Test func `F83: each forged token is rejected with its reason, which contains no claims`() async throws {
        let tokens = try ForeignTokens.made.get()
        let verifier = verifier(tokens)
        #expect(tokens.forged.count >= 60)
        for (name, forgery) in tokens.forged {
            do {
                _ = try await verifier.verify(forgery.token.utf8, at: ForeignTokens.now)
                Issue.record("accepted: \(name)")
            } catch .invalid(let reason) {
                #expect(reason.contains(forgery.reason), "\(name): \(reason)")
                for secret in ["alice", "desk-1", "token-", "evil"] { #expect(!reason.contains(secret), "\(name)") }
            } catch {
                Issue.record("\(name): \(error)")
            }
        }
    }

    @Test func `other algorithms and types must be configured`() async throws {
        let tokens = try ForeignTokens.made.get()
        var rules = TokenRules.ofTests
        rules.algorithms = [.es384, .es512, .rs512]
        for name in ["ES384", "ES512", "RS512"] {
            let token = try #require(tokens.other[name])
            await #expect(throws: LogoutFailure.self) {
                try await verifier(tokens).verify(token.utf8, at: ForeignTokens.now)
            }
            #expect(try await verifier(tokens, rules).verify(token.utf8, at: ForeignTokens.now).subject == "alice")
        }
        rules = .ofTests
        rules.types = ["logout+jwt", "JWT"]
        let old = try #require(tokens.other["typ JWT"])
        #expect(try await verifier(tokens, rules).verify(old.utf8, at: ForeignTokens.now).subject == "alice")
    }

    @Test func `a token without exp is accepted if configured, while its iat is recent`() async throws {
        let tokens = try ForeignTokens.made.get()
        var rules = TokenRules.ofTests
        rules.requiresExpiry = false
        let token = try #require(tokens.other["no exp"])
        await #expect(throws: LogoutFailure.self) {
            try await verifier(tokens).verify(token.utf8, at: ForeignTokens.now)
        }
        let verified = try await verifier(tokens, rules).verify(token.utf8, at: ForeignTokens.now)
        // The id is kept for as long as the token is valid: its maximum age and the skew.
        #expect(verified.subject == "alice" && verified.end == Int64(ForeignTokens.now) + 360)
        for name in ["no exp, issued long ago", "no exp, from the future", "an exp of null"] {
            let other = try #require(tokens.other[name])
            await #expect(throws: LogoutFailure.self, "\(name)") {
                try await verifier(tokens, rules).verify(other.utf8, at: ForeignTokens.now)
            }
        }
        #expect(
            try await verifier(tokens, rules).verify(try #require(tokens.good["RS256"]).utf8, at: ForeignTokens.now)
                .subject == "alice")
    }

    @Test func `a truncated or changed token is rejected`() async throws {
        let tokens = try ForeignTokens.made.get()
        let verifier = verifier(tokens)
        let token = Array(try #require(tokens.good["ES256"]).utf8)
        let spread = stride(from: 0, to: token.count, by: 7)
        for index in spread {
            await #expect(throws: LogoutFailure.self) {
                try await verifier.verify(token[..<index], at: ForeignTokens.now)
            }
        }
        for index in spread {
            var changed = token
            changed[index] = changed[index] == UInt8(ascii: "A") ? UInt8(ascii: "Q") : UInt8(ascii: "A")
            await #expect(throws: LogoutFailure.self, "\(index)") {
                try await verifier.verify(changed, at: ForeignTokens.now)
            }
        }
    }
}
