import CacheCore
import NIOConcurrencyHelpers
import Testing

@testable import DaemonServer

/// The queue of events between any thread and a connection's loop.
@Suite struct EventInboxTests {
    private static let alice = Owner(uid: 1000, user: OpaqueID("alice"))

    private static func event(_ kind: UserEvent.Kind, _ epoch: UInt64 = 1) -> PublishedEvent {
        PublishedEvent(UserEvent(owner: alice, kind: kind, epoch: epoch))
    }

    @Test func `the first event and each invalidation wake the connection`() throws {
        let woken = NIOLockedValueBox<[EventInbox.Urgency]>([])
        let inbox = EventInbox { urgency in woken.withLockedValue { $0.append(urgency) } }
        let update = Self.event(.update(OpaqueID("bob")))
        for _ in 0..<3 { inbox.deliver(update) }
        #expect(woken.withLockedValue { $0 } == [.soon])
        inbox.deliver(Self.event(.logout))
        #expect(woken.withLockedValue { $0 } == [.soon, .atOnce])
        for _ in 0..<3 {
            let next = try #require(inbox.next())
            #expect(next.published === update && !next.isLast)
        }
        let last = try #require(inbox.next())
        #expect(last.published.event.kind == .logout && last.isLast)
        #expect(inbox.next() == nil)
        inbox.deliver(update)
        #expect(woken.withLockedValue { $0 } == [.soon, .atOnce, .soon])
    }

    @Test func `I8: an event that does not fit is reported as an overrun`() {
        let woken = NIOLockedValueBox(0)
        let inbox = EventInbox { _ in woken.withLockedValue { $0 += 1 } }
        for epoch in 0..<UInt64(EventInbox.maximumEvents) { inbox.deliver(Self.event(.login, epoch)) }
        #expect(!inbox.isOverrun && woken.withLockedValue { $0 } == 1)
        inbox.deliver(Self.event(.login))
        #expect(inbox.isOverrun && inbox.next() == nil && woken.withLockedValue { $0 } == 2)
        inbox.deliver(Self.event(.logout))
        #expect(inbox.next() == nil && woken.withLockedValue { $0 } == 2)
    }
}
