import NIOConcurrencyHelpers
import NIOCore
import NIOEmbedded
import Testing

@testable import DaemonServer

struct RotaTests {
    /// A clock that each go sets ahead.
    private let time = NIOLockedValueBox(NIODeadline.uptimeNanoseconds(0))
    private let order = NIOLockedValueBox<[Int]>([])
    private let eventLoop = EmbeddedEventLoop()

    private func rota() -> Rota {
        Rota(eventLoop: eventLoop) { [time] in time.withLockedValue { $0 } }
    }

    private func line(_ rota: Rota, _ numbers: Range<Int>, each: TimeAmount) {
        for number in numbers {
            rota.nextRound { [time, order] in
                time.withLockedValue { $0 = $0 + each }
                order.withLockedValue { $0.append(number) }
            }
        }
    }

    @Test func `I8: a round that takes long is broken off, and goes on where it ended`() {
        let rota = rota()
        line(rota, 0..<10, each: .milliseconds(2))
        eventLoop.advanceTime(by: .microseconds(100))
        #expect(order.withLockedValue { $0 } == [0, 1, 2])
        // Who comes meanwhile comes behind.
        line(rota, 10..<11, each: .milliseconds(2))
        eventLoop.advanceTime(by: .milliseconds(1))
        #expect(order.withLockedValue { $0 } == Array(0..<11))
    }

    @Test func `what takes longer than a round has its go all the same`() {
        let rota = rota()
        line(rota, 0..<3, each: .seconds(1))
        eventLoop.advanceTime(by: .milliseconds(1))
        #expect(order.withLockedValue { $0 } == [0, 1, 2])
    }
}
