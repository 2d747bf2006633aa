import Testing

@testable import thumbcached

struct DaemonEventsTests {
    @Test func `repeated events are merged, and a stop precedes others`() {
        let events = DaemonEvents()
        for event in [.reload, .reload, .listenerClosed, .stop, .reload, .stop] as [DaemonEvents.Event] {
            events.post(event)
        }
        #expect(events.next() == .stop)
        #expect(events.next() == .listenerClosed)
        events.post(.stop)
        #expect(events.next() == .stop)
        #expect(events.next() == .reload)
        events.post(.reload)
        #expect(events.next() == .reload)
    }
}
