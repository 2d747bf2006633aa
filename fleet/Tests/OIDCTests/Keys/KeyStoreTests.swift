import Testing

@testable import thumbcached_oidc

@Suite struct KeyStoreTests {
    private let clock = TestClock()
    private let rules = TokenRules.ofTests
    private let times = KeyTimes(pause: 10_000, lifetime: 3_600_000)

    private func verifier(_ source: FakeKeySource) -> (TokenVerifier, KeyStore) {
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

    @Test func `F84: an unknown kid starts a key download, at most one per pause`()
        async throws
    {
        let tokens = try ForeignTokens.made.get()
        let source = FakeKeySource(.success(tokens.jwks), .success(tokens.rotated))
        let (verifier, _) = verifier(source)
        let (old, new) = (try #require(tokens.good["RS256"]), try #require(tokens.other["later"]))
        #expect(await failure(verifier, old) == nil)
        let unknown = LogoutFailure.invalid("the logout token's kid matches no key of the provider")
        let notRefreshed = LogoutFailure.unavailable(
            "the logout token's kid matches no known key, and the keys could not be refreshed")
        // No further download before the pause is over. The provider may have the key by now.
        clock.set(9_999)
        for _ in 0..<100 { #expect(await failure(verifier, new) == notRefreshed) }
        #expect(await source.requests == 1)
        clock.set(10_000)
        #expect(await failure(verifier, new) == nil)
        #expect(await source.requests == 2)
        // A known key needs no download; a withdrawn key is unknown.
        #expect(await failure(verifier, old) == nil)
        let withdrawn = try #require(tokens.good["ES256"])
        #expect(await failure(verifier, withdrawn) == notRefreshed)
        #expect(await source.requests == 2)
        clock.set(20_000)
        #expect(await failure(verifier, withdrawn) == unknown)
        #expect(await source.requests == 3)
    }

    @Test func `an unknown kid is invalid only after a successful download`() async throws {
        let tokens = try ForeignTokens.made.get()
        let source = FakeKeySource(.success(tokens.jwks), .failure(KeyFailure("away")), .success(tokens.jwks))
        let (verifier, _) = verifier(source)
        let token = try #require(tokens.other["later"])
        // The first download is for this token.
        guard case .invalid? = await failure(verifier, token) else {
            Issue.record("not invalid")
            return
        }
        clock.set(10_000)
        guard case .unavailable? = await failure(verifier, token) else {
            Issue.record("not unavailable after a failed download")
            return
        }
        clock.set(20_000)
        guard case .invalid? = await failure(verifier, token) else {
            Issue.record("not invalid after a download")
            return
        }
        #expect(await source.requests == 3)
    }

    @Test func `F84: concurrent tokens share one key download`() async throws {
        let tokens = try ForeignTokens.made.get()
        let source = FakeKeySource(.success(tokens.jwks), gated: true)
        let (verifier, _) = verifier(source)
        let token = try #require(tokens.good["RS256"])
        let all = (0..<50).map { _ in Task { await failure(verifier, token) } }
        await source.waitForDownloads(1)
        await source.openGate()
        for one in all { #expect(await one.value == nil) }
        #expect(await source.requests == 1)
    }

    @Test func `F84: failed and empty key downloads keep the known keys`() async throws {
        let tokens = try ForeignTokens.made.get()
        let source = FakeKeySource(
            .success(tokens.jwks), .failure(KeyFailure("away")), .success(Array("{\"keys\":[]}".utf8)),
            .success(Array("<html>".utf8)), .success(tokens.rotated))
        let (verifier, _) = verifier(source)
        let token = try #require(tokens.good["ES256"])
        #expect(await failure(verifier, token) == nil)
        for (number, time) in [(2, 3_600_000), (3, 3_610_000), (4, 3_620_000)] {
            clock.set(Int64(time))
            #expect(await failure(verifier, token) == nil)
            #expect(await source.requests == number)
        }
        // After the next successful download a withdrawn key is unknown.
        clock.set(3_630_000)
        #expect(await failure(verifier, token) != nil)
        #expect(await source.requests == 5)
    }

    @Test func `F84: without any keys a logout is unavailable, not invalid`() async throws {
        let tokens = try ForeignTokens.made.get()
        let source = FakeKeySource(.failure(KeyFailure("away")), .success(tokens.jwks))
        let (verifier, _) = verifier(source)
        let token = try #require(tokens.good["RS256"])
        guard case .unavailable? = await failure(verifier, token) else {
            Issue.record("not unavailable")
            return
        }
        _ = await failure(verifier, token)
        #expect(await source.requests == 1)
        clock.set(10_000)
        #expect(await failure(verifier, token) == nil)
    }

    @Test func `a key set has at most 64 keys, and unusable keys are ignored`() async throws {
        let tokens = try ForeignTokens.made.get()
        let set = try await KeySet(tokens.jwks, algorithms: rules.algorithms)
        #expect(Set(set.keys.compactMap(\.id)) == ["rsa", "any-rsa", "p256", "ed25519"])
        #expect(set.skipped == 8)
        let many = Array("{\"keys\":[\(Array(repeating: "{}", count: 65).joined(separator: ","))]}".utf8)
        await #expect(throws: KeyFailure("the response has 65 keys; at most 64 are allowed")) {
            try await KeySet(many, algorithms: rules.algorithms)
        }
        await #expect(throws: KeyFailure("the response has no key for any of oidc.algorithms")) {
            try await KeySet(tokens.rotated, algorithms: [.es256])
        }
        for odd in ["", "5", "{}", "{\"keys\":{}}", "[]"] {
            await #expect(throws: KeyFailure("the response is not a JSON Web Key Set (RFC 7517)")) {
                try await KeySet(Array(odd.utf8), algorithms: rules.algorithms)
            }
        }
    }
}
