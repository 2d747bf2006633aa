import CacheCore
import Glibc
import NIOCore
import Testing

@testable import DiskStore

@Suite struct MaintenanceSignalTests {
    private let signal = MaintenanceSignal()
    private let begin = NIODeadline.uptimeNanoseconds(1_000_000_000)

    private func next(_ seconds: Int64) -> MaintenanceSignal.Next {
        signal.next(at: begin + .seconds(seconds), retryPause: .seconds(60))
    }

    @Test func `without work the thread sleeps without a timeout`() {
        #expect(next(0) == .sleepUntilWoken)
        signal.wake()
        signal.wake()
        #expect(next(1) == .run)
        #expect(next(2) == .sleepUntilWoken)
    }

    @Test func `failed work is retried once, after the pause`() {
        signal.retryLater()
        #expect(next(0) == .sleep(.seconds(60)))
        signal.retryLater()
        #expect(next(59) == .sleep(.seconds(1)))
        #expect(next(60) == .run)
        #expect(next(61) == .sleepUntilWoken)
    }

    @Test func `a wake does not wait for a retry and replaces it`() {
        signal.retryLater()
        #expect(next(0) == .sleep(.seconds(60)))
        signal.wake()
        #expect(next(1) == .run)
        #expect(next(2) == .sleepUntilWoken)
    }

    @Test func `a stop ends every sleep`() {
        signal.stop()
        #expect(next(0) == .run)
        signal.wait(retryPause: 60)
        signal.sleep(seconds: 86_400)
        #expect(signal.isStopped)
    }

    @Test func `I8: only a failed run arms a retry`() throws {
        let tree = try TestTree()
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            let signal = store.maintenance.signal
            func next() -> MaintenanceSignal.Next { signal.next(at: begin, retryPause: .seconds(60)) }
            let generationStore = try store.commitLogin(alice, .plain)
            try generationStore.put(imageKey("bob"), testImage(1))
            store.maintain()
            _ = next()
            #expect(next() == .sleepUntilWoken)
            generationStore.close()
            try store.commitLogout(alice)
            generationStore.discard()
            #expect(next() == .run)
            system.plan { call, _, _ in call == .unlink ? .fail(EIO) : nil }
            store.maintain()
            #expect(next() == .sleep(.seconds(60)))
            system.heal()
            store.maintain()
            #expect(next() == .sleep(.seconds(60)))
            #expect(signal.next(at: begin + .seconds(60), retryPause: .seconds(60)) == .run)
            #expect(next() == .sleepUntilWoken)
        }
    }
}
