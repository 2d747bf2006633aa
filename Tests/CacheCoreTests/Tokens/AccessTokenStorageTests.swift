import CacheFakes
import LinuxSupport
import NIOConcurrencyHelpers
import Testing

@testable import CacheCore

/// Refreshed tokens that cannot be stored.
@Suite(.timeLimit(.minutes(5))) struct AccessTokenStorageTests {
    private let world = FakeWorld()

    @Test
    func `I8: however many refreshed tokens cannot be stored, one retry is pending, and the first success ends it`()
        async throws
    {
        let isFull = NIOLockedValueBox(true)
        let attempts = NIOLockedValueBox(0)
        let service = AccessTokenService(
            .of(nil, "r1"), quotaAccount: 1000, services: world.services,
            callbacks: .init(
                store: { _ throws(CacheFailure) in
                    attempts.withLockedValue { $0 += 1 }
                    if isFull.withLockedValue({ $0 }) { throw .noSpace("disk full") }
                },
                adopt: { _ in }, log: { _, _ in }))
        let time = world.time
        var origin = FakeWorld.origin
        origin.tokenEndpoint = TokenEndpoint(url: "https://id.test/token", clientID: "c")
        let renewed = origin
        func renew(_ rejected: String?, to next: String) async throws {
            world.tokens.answer = { _ in .success(.init(next)) }
            _ = service.requestToken(rejected: rejected.map { Secret($0) }, of: renewed) { _ in }
            while service.tokens.access != Secret(next) { try await yieldTask() }
        }
        try await renew(nil, to: "t1")
        try await renew("t1", to: "t2")
        try await renew("t2", to: "t3")
        #expect(attempts.withLockedValue { $0 } == 3)
        #expect(time.timers == 1)
        isFull.withLockedValue { $0 = false }
        try await renew("t3", to: "t4")
        #expect(time.timers == 0)
        time.advance(seconds: 1_000)
        #expect(attempts.withLockedValue { $0 } == 4)
    }
}
