import Testing

@testable import thumbcached

struct DaemonEventsTests {
    @Test func `what is told again before it was looked at is one event, and a stop goes before all others`() {
        let events = DaemonEvents()
        for event in [.reload, .reload, .listenerClosed, .stop, .reload, .stop] as [DaemonEvents.Event] {
            events.tell(event)
        }
        #expect(events.next() == .stop)
        #expect(events.next() == .listenerClosed)
        events.tell(.stop)
        #expect(events.next() == .stop)
        #expect(events.next() == .reload)
        events.tell(.reload)
        #expect(events.next() == .reload)
    }
}
