import Testing

@testable import thumbcached_oidc

@Suite struct KeyStoreTests {
    private let clock = TestClock()
    private let rules = TokenRules.ofTests
    private let times = KeyTimes(pause: 10_000, lifetime: 3_600_000)

    private func verifier(_ source: TestSource) -> (TokenVerifier, KeyStore) {
        let keys = KeyStore(
            source, algorithms: rules.algorithms, times: times, log: silent, now: { [clock] in clock.now })
        return (TokenVerifier(rules: rules, keys: keys), keys)
    }

    private func failure(_ verifier: TokenVerifier, _ token: String) async -> LogoutFailure? {
        do {
            _ = try await verifier.verify(token.utf8, at: ForeignTokens.now)
            return nil
        } catch {
            return error
        }
    }

    @Test func `F84: an unknown kid is looked for once in a while, and found when the provider has a new key`()
        async throws
    {
        let tokens = try ForeignTokens.made.get()
        let source = TestSource(.success(tokens.jwks), .success(tokens.rotated))
        let (verifier, _) = verifier(source)
        let (old, new) = (try #require(tokens.good["RS256"]), try #require(tokens.other["later"]))
        #expect(await failure(verifier, old) == nil)
        let unknown = LogoutFailure.invalid("the logout token's kid is none of the provider's keys")
        // However many come: the pause is not over.
        clock.set(9_999)
        for _ in 0..<100 { #expect(await failure(verifier, new) == unknown) }
        #expect(await source.questions == 1)
        clock.set(10_000)
        #expect(await failure(verifier, new) == nil)
        #expect(await source.questions == 2)
        // What is known is not asked for; what was withdrawn is gone.
        #expect(await failure(verifier, old) == nil)
        #expect(await failure(verifier, try #require(tokens.good["ES256"])) == unknown)
        #expect(await source.questions == 2)
    }

    @Test func `F84: many tokens at once are one question`() async throws {
        let tokens = try ForeignTokens.made.get()
        let source = TestSource(.success(tokens.jwks), gated: true)
        let (verifier, _) = verifier(source)
        let token = try #require(tokens.good["RS256"])
        let all = (0..<50).map { _ in Task { await failure(verifier, token) } }
        await source.waitForQuestions(1)
        await source.openGate()
        for one in all { #expect(await one.value == nil) }
        #expect(await source.questions == 1)
    }

    @Test func `F84: an endpoint that fails, or sends no keys, leaves those that are known`() async throws {
        let tokens = try ForeignTokens.made.get()
        let source = TestSource(
            .success(tokens.jwks), .failure(KeyFailure("away")), .success(Array("{\"keys\":[]}".utf8)),
            .success(Array("<html>".utf8)), .success(tokens.rotated))
        let (verifier, _) = verifier(source)
        let token = try #require(tokens.good["ES256"])
        #expect(await failure(verifier, token) == nil)
        for (question, time) in [(2, 3_600_000), (3, 3_610_000), (4, 3_620_000)] {
            clock.set(Int64(time))
            #expect(await failure(verifier, token) == nil)
            #expect(await source.questions == question)
        }
        // When they are old, and it answers again, a key that was withdrawn is one no more.
        clock.set(3_630_000)
        #expect(await failure(verifier, token) != nil)
        #expect(await source.questions == 5)
    }

    @Test func `F84: without any keys a log-out fails, and is not called wrong`() async throws {
        let tokens = try ForeignTokens.made.get()
        let source = TestSource(.failure(KeyFailure("away")), .success(tokens.jwks))
        let (verifier, _) = verifier(source)
        let token = try #require(tokens.good["RS256"])
        guard case .unavailable? = await failure(verifier, token) else {
            Issue.record("it is not unavailable")
            return
        }
        _ = await failure(verifier, token)
        #expect(await source.questions == 1)
        clock.set(10_000)
        #expect(await failure(verifier, token) == nil)
    }

    @Test func `a set has 64 keys at most, and those that are no use here are ignored`() async throws {
        let tokens = try ForeignTokens.made.get()
        let set = try await KeySet(tokens.jwks, algorithms: rules.algorithms)
        #expect(Set(set.keys.compactMap(\.id)) == ["rsa", "any-rsa", "p256", "ed25519"])
        #expect(set.skipped == 8)
        let many = Array("{\"keys\":[\(Array(repeating: "{}", count: 65).joined(separator: ","))]}".utf8)
        await #expect(throws: KeyFailure("the answer has 65 keys: at most 64 are taken")) {
            try await KeySet(many, algorithms: rules.algorithms)
        }
        await #expect(throws: KeyFailure("the answer has no key for any of oidc.algorithms")) {
            try await KeySet(tokens.rotated, algorithms: [.es256])
        }
        for odd in ["", "5", "{}", "{\"keys\":{}}", "[]"] {
            await #expect(throws: KeyFailure("the answer is no JSON Web Key Set (RFC 7517)")) {
                try await KeySet(Array(odd.utf8), algorithms: rules.algorithms)
            }
        }
    }
}
