import CacheFakes
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore

/// Contents and order of the events that subscribers receive.
@Suite(.timeLimit(.minutes(2))) struct UserEventTests {
    /// Records events as `alice: purge 3 bob`. Epochs count from the daemon's start.
    private final class Listener: EventSubscriber {
        let loop: any SubscriberLoop
        private let events = NIOLockedValueBox<[String]>([])

        private let wakes: Bool

        init(on loop: any SubscriberLoop = Loop(), wakes: Bool = true) { (self.loop, self.wakes) = (loop, wakes) }

        func enqueue(_ event: UserEvent) -> Bool {
            let epoch = event.epoch & 0xFFFF_FFFF
            let words =
                switch event.kind {
                case .login: "login \(epoch)"
                case .logout: "logout \(epoch)"
                case .purge(nil): "purge \(epoch)"
                case .purge(let profile?): "purge \(epoch) \(profile.text)"
                case .update(let profile): "update \(epoch) \(profile.text)"
                }
            events.withLockedValue { $0.append("\(event.owner.user.text): \(words)") }
            return wakes
        }

        /// Events for which the loop has called this.
        let handled = NIOLockedValueBox<[UserEvent]>([])
        func handleEvents(for event: UserEvent) { handled.withLockedValue { $0.append(event) } }

        /// Events since the previous call.
        var newEvents: [String] {
            events.withLockedValue { events in
                defer { events = [] }
                return events
            }
        }
    }

    /// Records tasks without running them.
    private final class Loop: SubscriberLoop {
        let tasks = NIOLockedValueBox<[@Sendable () -> Void]>([])

        func execute(_ task: @escaping @Sendable () -> Void) { tasks.withLockedValue { $0.append(task) } }
    }

    @Test func `an event is handled on the subscriber's loop, before the work that follows it`() {
        let (hub, loop, hasFollowed) = (EventHub(), Loop(), NIOLockedValueBox(0))
        let event = UserEvent(owner: Owner(uid: 1000, user: OpaqueID("alice")), kind: .logout, epoch: 1)
        let publish = { hub.publish(event) { hasFollowed.withLockedValue { $0 += 1 } } }
        publish()
        #expect(hasFollowed.withLockedValue { $0 } == 1)
        let listeners = [Listener(on: loop), Listener()]
        for listener in listeners { #expect(hub.add(listener, to: .all, of: 1000)) }
        publish()
        for listener in listeners { #expect(listener.newEvents == ["alice: logout 1"]) }
        var tasks = loop.tasks.withLockedValue { $0 }[...]
        tasks.popFirst()?()
        #expect(listeners[0].handled.withLockedValue { $0 } == [event])
        #expect(hasFollowed.withLockedValue { $0 } == 1)
        for task in tasks { task() }
        for listener in listeners where listener.loop !== loop {
            for task in (listener.loop as? Loop)?.tasks.withLockedValue({ $0 }) ?? [] { task() }
        }
        #expect(hasFollowed.withLockedValue { $0 } == 2)
    }

    @Test func `a subscriber that handles its events later needs no task`() {
        let (hub, loop) = (EventHub(), Loop())
        #expect(hub.add(Listener(on: loop, wakes: false), to: .all, of: 1000))
        hub.publish(UserEvent(owner: Owner(uid: 1000, user: OpaqueID("alice")), kind: .login, epoch: 1))
        #expect(loop.tasks.withLockedValue { $0.isEmpty })
    }

    private func listener(
        to channel: EventHub.Channel = .all, of uid: UInt32 = 1000, _ daemon: Daemon
    ) -> Listener {
        let listener = Listener()
        #expect(daemon.world.services.events.add(listener, to: channel, of: uid))
        return listener
    }

    @Test func `each login, logout, purge and new image causes one event, after its commit and before its reply`()
        async throws
    {
        let daemon = Daemon()
        let listener = listener(daemon)
        try await daemon.logIn(.alice)
        #expect(listener.newEvents == ["alice: login 1"])
        try await daemon.logIn(.alice, session: "second")
        #expect(listener.newEvents == [])
        try await daemon.put(.alice, "bob", "b")
        #expect(listener.newEvents == ["alice: update 1 bob"])
        _ = try await daemon.purge(.alice, "bob", "eve")
        #expect(listener.newEvents == ["alice: purge 3 bob", "alice: purge 3 eve"])
        _ = try await daemon.purge(.alice)
        #expect(listener.newEvents == ["alice: purge 4"])
        _ = try await daemon.logOut(.alice, session: "second")
        #expect(listener.newEvents == [])
        _ = try await daemon.logOut(.alice)
        #expect(listener.newEvents == ["alice: logout 6"])
        _ = try await daemon.logOut(.alice)
        #expect(listener.newEvents == [])
    }

    @Test func `a subscriber receives events of its uid and of users it follows, each event once`() async throws {
        let daemon = Daemon()
        let (both, other) = (listener(daemon), listener(of: 1001, daemon))
        let carol = listener(to: .user(OpaqueID("carol")), daemon)
        #expect(daemon.world.services.events.add(both, to: .user(OpaqueID("alice")), of: 1000))
        #expect(!daemon.world.services.events.add(both, to: .all, of: 1000))
        try await daemon.logIn(.alice)
        try await daemon.logIn(.carol)
        try await daemon.logIn(.otherAlice)
        #expect(both.newEvents == ["alice: login 1", "carol: login 2"])
        #expect(carol.newEvents == ["carol: login 2"])
        #expect(other.newEvents == ["alice: login 1"])
        daemon.world.services.events.remove(both, from: [.all], of: 1000)
        daemon.world.services.events.remove(carol, from: [.user(OpaqueID("carol"))], of: 1000)
        _ = try await daemon.invalidationService.logOutAll(uid: 1000)
        #expect(both.newEvents.map { $0.prefix(13) } == ["alice: logout"])
        #expect(carol.newEvents == [])
    }

    @Test func `I4: a purge or logout causes an event only after it is durable`() async throws {
        let daemon = Daemon()
        try await daemon.logIn(.alice)
        let listener = listener(daemon)
        daemon.store.fail(.commitLogout)
        await #expect(throws: CacheFailure.self) { try await daemon.logOut(.alice) }
        #expect(listener.newEvents == [])
        _ = try await daemon.logOut(.alice)
        #expect(listener.newEvents.map { $0.prefix(13) } == ["alice: logout"])
    }

    @Test func `I3: the event of an image stored before a purge precedes the event of the purge`() async throws {
        let daemon = Daemon()
        try await daemon.logIn(.alice)
        let listener = listener(daemon)
        async let got = daemon.get(.alice, "bob")
        await daemon.fetcher.started(1)
        daemon.fetcher.downloads[0].end(SampleImage.downloaded("b"))
        #expect(await got == "b from origin")
        _ = try await daemon.purge(.alice)
        // A cancelled download causes no event.
        async let late = daemon.get(.alice, "bob")
        await daemon.fetcher.started(2)
        _ = try await daemon.logOut(.alice)
        daemon.fetcher.downloads[1].end(SampleImage.downloaded("late"))
        #expect(await late == "cancelled")
        #expect(listener.newEvents == ["alice: update 1 bob", "alice: purge 2", "alice: logout 3"])
    }

    @Test func `an identical image or one that is not stored causes no event`() {
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

    @Test func `removing an image causes an event; a repeated 404 does not`() {
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
