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

    private static func next(_ inbox: EventInbox) throws -> (event: UserEvent, isLast: Bool) {
        guard case .write(let event, let isLast) = inbox.next() else { throw NoEvent() }
        return (event, isLast)
    }

    private struct NoEvent: Error {}

    private static func isEmpty(_ inbox: EventInbox) -> Bool { if case .nothing = inbox.next() { true } else { false } }
    private static func mustClose(_ inbox: EventInbox) -> Bool { if case .close = inbox.next() { true } else { false } }

    @Test func `the first event and each invalidation wake the loop`() throws {
        let inbox = EventInbox(on: Loop()) { _ in }
        let update = Self.event(.update(OpaqueID("bob")))
        #expect((0..<3).map { _ in inbox.enqueue(update) } == [true, false, false])
        #expect(inbox.enqueue(Self.event(.logout)))
        for _ in 0..<3 {
            let next = try Self.next(inbox)
            #expect(next.event == update && !next.isLast)
        }
        let last = try Self.next(inbox)
        #expect(last.event.kind == .logout && last.isLast)
        #expect(Self.isEmpty(inbox))
        #expect(inbox.enqueue(update))
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
        #expect(inbox.isOverrun && Self.mustClose(inbox))
        // The receipt of the logout waits for the disconnect.
        #expect(!inbox.enqueue(Self.event(.login)) && inbox.enqueue(Self.event(.logout)) && Self.mustClose(inbox))
    }
}
