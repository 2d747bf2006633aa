import Testing

@testable import DaemonServer

@Suite struct OutputMeterTests {
    @Test func `what was written is unread until the channel says that it is gone`() {
        var meter = OutputMeter()
        #expect(meter.unread == 0 && meter.sent == 0 && !meter.needsFlush)
        meter.wrote(100)
        #expect(meter.unread == 100 && meter.sent == 0 && meter.needsFlush)
        meter.flushed()
        #expect(meter.unread == 100 && !meter.needsFlush)
        meter.measured(buffered: 40)
        #expect(meter.unread == 40 && meter.sent == 60)
        meter.wrote(7)
        #expect(meter.unread == 47 && meter.sent == 60)
        meter.measured(buffered: 0)
        #expect(meter.unread == 0 && meter.sent == 107)
    }

    @Test func `measuring is no flushing`() {
        var meter = OutputMeter()
        meter.wrote(100)
        meter.measured(buffered: 100)
        #expect(meter.needsFlush)
    }
}
