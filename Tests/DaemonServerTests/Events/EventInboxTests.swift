import CacheCore
import NIOConcurrencyHelpers
import Testing

@testable import DaemonServer

/// The queue of events between any thread and the subscribers of a loop.
@Suite struct EventInboxTests {
    private static let alice = Owner(uid: 1000, user: OpaqueID("alice"))

    private static func event(_ kind: UserEvent.Kind, _ epoch: UInt64 = 1) -> UserEvent {
        UserEvent(owner: alice, kind: kind, epoch: epoch)
    }

    private final class Loop: SubscriberLoop {
        func execute(_ task: @escaping @Sendable () -> Void) {}
    }

    @Test func `the first event and each invalidation wake the loop`() throws {
        let inbox = EventInbox(on: Loop()) { _ in }
        #expect(inbox.isEmpty && inbox.lastNumber == 0)
        let events = [.update(OpaqueID("bob")), .login, .update(OpaqueID("amy")), .logout].map { Self.event($0) }
        #expect(events.map(inbox.enqueue) == [true, false, false, true])
        #expect(!inbox.isEmpty && inbox.lastNumber == 4)
        let queued = try #require(inbox.removeAll())
        #expect(queued.map(\.event) == events)
        #expect(queued.map(\.number) == [1, 2, 3, 4])
        #expect(inbox.isEmpty && inbox.removeAll() == [])
        #expect(inbox.enqueue(events[0]))
        #expect(inbox.lastNumber == 5)
    }

    @Test func `I3: only an invalidation or an overrun is delivered at once`() {
        let delivered = NIOLockedValueBox<[EventInbox.Urgency]>([])
        let inbox = EventInbox(on: Loop()) { urgency in delivered.withLockedValue { $0.append(urgency) } }
        let kinds = [UserEvent.Kind.login, .update(OpaqueID("bob")), .purge(nil), .purge(OpaqueID("bob")), .logout]
        for kind in kinds { inbox.handleEvents(for: Self.event(kind)) }
        #expect(delivered.withLockedValue { $0 } == [.soon, .soon, .atOnce, .atOnce, .atOnce])
        for _ in 0...EventInbox.maximumEvents { _ = inbox.enqueue(Self.event(.login)) }
        inbox.handleEvents(for: Self.event(.login))
        #expect(delivered.withLockedValue { $0.last } == .atOnce)
    }

    @Test func `I8: an event that does not fit is reported as an overrun`() {
        let inbox = EventInbox(on: Loop()) { _ in }
        let woken = (0..<UInt64(EventInbox.maximumEvents)).map { inbox.enqueue(Self.event(.login, $0)) }
        #expect(woken.first == true && !woken.dropFirst().contains(true) && !inbox.isOverrun)
        #expect(inbox.enqueue(Self.event(.login)))
        #expect(inbox.isOverrun && !inbox.isEmpty && inbox.removeAll() == nil)
        // The receipt of the logout waits for the disconnect.
        #expect(!inbox.enqueue(Self.event(.login)) && inbox.enqueue(Self.event(.logout)) && inbox.removeAll() == nil)
    }
}
