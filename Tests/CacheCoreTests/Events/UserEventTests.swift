import CacheFakes
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore

/// What subscribers are told of users, and in which order.
@Suite(.timeLimit(.minutes(2))) struct UserEventTests {
    /// Writes down what it is told, as `alice: purge 3 bob`, with epochs as they count from the daemon's start.
    private final class Listener: EventSubscriber {
        private let told = NIOLockedValueBox<[String]>([])

        func tell(_ event: UserEvent) {
            let epoch = event.epoch & 0xFFFF_FFFF
            let words =
                switch event.kind {
                case .login: "login \(epoch)"
                case .logout: "logout \(epoch)"
                case .purge(nil): "purge \(epoch)"
                case .purge(let profile?): "purge \(epoch) \(profile.text)"
                case .update(let profile): "update \(epoch) \(profile.text)"
                }
            told.withLockedValue { $0.append("\(event.owner.user.text): \(words)") }
        }

        /// What was told since the last look.
        var news: [String] {
            told.withLockedValue { told in
                defer { told = [] }
                return told
            }
        }
    }

    private func listener(
        to channel: EventHub.Channel = .all, of uid: UInt32 = 1000, _ daemon: Daemon
    ) -> Listener {
        let listener = Listener()
        #expect(daemon.world.services.events.add(listener, to: channel, of: uid))
        return listener
    }

    @Test func `each log-in, log-out, purge and new image is told once, behind the fact and before its answer`()
        async throws
    {
        let daemon = Daemon()
        let listener = listener(daemon)
        try await daemon.logIn(.alice)
        #expect(listener.news == ["alice: login 1"])
        try await daemon.logIn(.alice, session: "second")
        #expect(listener.news == [])
        try await daemon.put(.alice, "bob", "b")
        #expect(listener.news == ["alice: update 1 bob"])
        _ = try await daemon.purge(.alice, "bob", "eve")
        #expect(listener.news == ["alice: purge 3 bob", "alice: purge 3 eve"])
        _ = try await daemon.purge(.alice)
        #expect(listener.news == ["alice: purge 4"])
        _ = try await daemon.logOut(.alice, session: "second")
        #expect(listener.news == [])
        _ = try await daemon.logOut(.alice)
        #expect(listener.news == ["alice: logout 6"])
        _ = try await daemon.logOut(.alice)
        #expect(listener.news == [])
    }

    @Test func `one is told of its own uid's users, of those it follows, and of each event once`() async throws {
        let daemon = Daemon()
        let (both, other) = (listener(daemon), listener(of: 1001, daemon))
        let carol = listener(to: .user(OpaqueID("carol")), daemon)
        #expect(daemon.world.services.events.add(both, to: .user(OpaqueID("alice")), of: 1000))
        #expect(!daemon.world.services.events.add(both, to: .all, of: 1000))
        try await daemon.logIn(.alice)
        try await daemon.logIn(.carol)
        try await daemon.logIn(.otherAlice)
        #expect(both.news == ["alice: login 1", "carol: login 2"])
        #expect(carol.news == ["carol: login 2"])
        #expect(other.news == ["alice: login 1"])
        daemon.world.services.events.remove(both, from: [.all], of: 1000)
        daemon.world.services.events.remove(carol, from: [.user(OpaqueID("carol"))], of: 1000)
        _ = try await daemon.logout.logOutAll(uid: 1000)
        #expect(both.news.map { $0.prefix(13) } == ["alice: logout"])
        #expect(carol.news == [])
    }

    @Test func `I4: an invalidation that is not durable is told only when it is`() async throws {
        let daemon = Daemon()
        try await daemon.logIn(.alice)
        let listener = listener(daemon)
        daemon.store.fail(.commitLogout)
        await #expect(throws: CacheFailure.self) { try await daemon.logOut(.alice) }
        #expect(listener.news == [])
        _ = try await daemon.logOut(.alice)
        #expect(listener.news.map { $0.prefix(13) } == ["alice: logout"])
    }

    @Test func `I3: an image that came before a purge is told before it`() async throws {
        let daemon = Daemon()
        try await daemon.logIn(.alice)
        let listener = listener(daemon)
        async let got = daemon.get(.alice, "bob")
        await daemon.fetcher.started(1)
        daemon.fetcher.downloads[0].end(SampleImage.downloaded("b"))
        #expect(await got == "b from origin")
        _ = try await daemon.purge(.alice)
        // A download that the purge has stopped brings nothing, and is not told.
        async let late = daemon.get(.alice, "bob")
        await daemon.fetcher.started(2)
        _ = try await daemon.logOut(.alice)
        daemon.fetcher.downloads[1].end(SampleImage.downloaded("late"))
        #expect(await late == "cancelled")
        #expect(listener.news == ["alice: update 1 bob", "alice: purge 2", "alice: logout 3"])
    }

    @Test func `what is the same as before, or is not kept, is no change`() {
        var bench = CoordinatorBench()
        bench.now += 3_700
        bench.memory = .sample("held")
        _ = bench.get("a")
        _ = bench.finishes(.confirmed(.sample("held"), storable: true))
        #expect(bench.changed == [])
        _ = bench.get("b")
        _ = bench.finishes(.image(.sample("held"), storable: true))
        #expect(bench.changed == [])
        _ = bench.get("c")
        _ = bench.finishes(.image(.sample("new"), storable: true))
        #expect(bench.changed == ["bob"])

        var empty = CoordinatorBench()
        _ = empty.get("a")
        _ = empty.readEnds()
        _ = empty.finishes(.image(.sample("not to be kept"), storable: false))
        #expect(empty.changed == [])
    }

    @Test func `that there is an image no more is a change, that there is still none is not`() {
        var bench = CoordinatorBench()
        bench.now += 3_700
        bench.memory = .sample("held")
        _ = bench.get("a")
        _ = bench.finishes(.missing(until: bench.now + 60, family: 0))
        #expect(bench.changed == ["bob"])

        var empty = CoordinatorBench()
        _ = empty.get("a")
        _ = empty.readEnds()
        _ = empty.finishes(.missing(until: empty.now + 60, family: 0))
        #expect(empty.changed == [])
    }
}
