import CacheCore
import NIOConcurrencyHelpers
import Testing

@testable import DaemonServer

/// The way of events from the thread they are told on to the loop of a connection.
@Suite struct EventInboxTests {
    private static let alice = Owner(uid: 1000, user: OpaqueID("alice"))

    private static func event(_ kind: UserEvent.Kind, _ epoch: UInt64 = 1) -> UserEvent {
        UserEvent(owner: alice, kind: kind, epoch: epoch)
    }

    @Test func `the first event wakes, those behind it wait with it, and an invalidation wakes at once`() {
        let woken = NIOLockedValueBox<[EventInbox.Urgency]>([])
        let inbox = EventInbox { urgency in woken.withLockedValue { $0.append(urgency) } }
        let update = Self.event(.update(OpaqueID("bob")))
        for _ in 0..<3 { inbox.tell(update) }
        #expect(woken.withLockedValue { $0 } == [.soon])
        inbox.tell(Self.event(.logout))
        #expect(woken.withLockedValue { $0 } == [.soon, .atOnce])
        for _ in 0..<3 { #expect(inbox.next() == update) }
        #expect(inbox.next() == Self.event(.logout))
        #expect(inbox.next() == nil)
        inbox.tell(update)
        #expect(woken.withLockedValue { $0 } == [.soon, .atOnce, .soon])
    }

    @Test func `I8: what does not fit is never left out in silence`() {
        let woken = NIOLockedValueBox(0)
        let inbox = EventInbox { _ in woken.withLockedValue { $0 += 1 } }
        for epoch in 0..<UInt64(EventInbox.most) { inbox.tell(Self.event(.login, epoch)) }
        #expect(!inbox.isOverrun && woken.withLockedValue { $0 } == 1)
        inbox.tell(Self.event(.login))
        #expect(inbox.isOverrun && inbox.next() == nil && woken.withLockedValue { $0 } == 2)
        inbox.tell(Self.event(.logout))
        #expect(inbox.next() == nil && woken.withLockedValue { $0 } == 2)
    }
}
