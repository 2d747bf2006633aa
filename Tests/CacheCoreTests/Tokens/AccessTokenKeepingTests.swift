import CacheFakes
import LinuxSupport
import NIOConcurrencyHelpers
import Testing

@testable import CacheCore

/// Renewed tokens and a disk that does not take them.
@Suite(.timeLimit(.minutes(5))) struct AccessTokenKeepingTests {
    private let world = FakeWorld()

    @Test func `I8: however many renewed tokens cannot be made durable, one try waits, and the first success ends it`()
        async throws
    {
        let isFull = NIOLockedValueBox(true)
        let tries = NIOLockedValueBox(0)
        let service = AccessTokenService(
            .of(nil, "r1"), quotaAccount: 1000, services: world.services,
            keeper: .init(
                keep: { _ throws(CacheFailure) in
                    tries.withLockedValue { $0 += 1 }
                    if isFull.withLockedValue({ $0 }) { throw .noSpace("disk full") }
                },
                adopt: { _ in }, tell: { _, _ in }))
        let time = world.time
        var origin = FakeWorld.origin
        origin.tokenEndpoint = TokenEndpoint(url: "https://id.test/token", clientID: "c")
        let renewed = origin
        func renew(_ refused: String?, to next: String) async throws {
            world.tokens.answer = { _ in .success(.init(next)) }
            _ = service.ask(refused: refused.map { Secret($0) }, of: renewed) { _ in }
            while service.tokens.access != Secret(next) { try await turn() }
        }
        try await renew(nil, to: "t1")
        try await renew("t1", to: "t2")
        try await renew("t2", to: "t3")
        #expect(tries.withLockedValue { $0 } == 3)
        #expect(time.timers == 1)
        isFull.withLockedValue { $0 = false }
        try await renew("t3", to: "t4")
        #expect(time.timers == 0)
        time.advance(seconds: 1_000)
        #expect(tries.withLockedValue { $0 } == 4)
    }
}
