import DequeModule
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import SocketLoops

@Suite struct AgendaTests {
    private let done = NIOLockedValueBox<[String]>([])

    private func work(_ name: String) -> Agenda.Work {
        { [done] in done.withLockedValue { $0.append(name) } }
    }

    private func timer(_ name: String) -> Agenda.Timer {
        Agenda.Timer(run: work(name), drop: work("drop \(name)"))
    }

    private func moment(_ milliseconds: UInt64) -> NIODeadline {
        .uptimeNanoseconds(milliseconds * 1_000_000)
    }

    private func runDue(of agenda: inout Agenda, at milliseconds: UInt64) -> [String] {
        for item in agenda.takeDue(at: moment(milliseconds)) { agenda.work(of: item)?() }
        return done.withLockedValue { done in
            defer { done = [] }
            return done
        }
    }

    @Test func `what is due comes in the order in which it was told, timers behind the rest by their time`() {
        var agenda = Agenda()
        _ = agenda.add(timer("second"), at: moment(20))
        _ = agenda.add(timer("first"), at: moment(10))
        _ = agenda.add(timer("also second"), at: moment(20))
        _ = agenda.add(timer("later"), at: moment(21))
        agenda.add(work("a"))
        agenda.add(work("b"))
        #expect(runDue(of: &agenda, at: 20) == ["a", "b", "first", "second", "also second"])
        #expect(runDue(of: &agenda, at: 20) == [])
        #expect(runDue(of: &agenda, at: 21) == ["later"])
    }

    @Test func `there is no pause while something is due, then one until the next timer, then one for ever`() {
        var agenda = Agenda()
        #expect(agenda.pause(from: moment(0)) == nil)
        _ = agenda.add(timer("later"), at: moment(30))
        #expect(agenda.pause(from: moment(10)) == .milliseconds(20))
        #expect(agenda.pause(from: moment(40)) == .zero)
        agenda.add(work("now"))
        #expect(agenda.pause(from: moment(10)) == .zero)
        _ = agenda.takeDue(at: moment(40))
        #expect(agenda.pause(from: moment(40)) == nil)
    }

    @Test func `what is given back comes before what came meanwhile`() {
        var agenda = Agenda()
        for name in ["a", "b", "c"] { agenda.add(work(name)) }
        var due = agenda.takeDue(at: moment(0))
        due.removeFirst()
        agenda.add(work("d"))
        agenda.giveBack(due)
        #expect(runDue(of: &agenda, at: 0) == ["b", "c", "d"])
    }

    @Test func `a timer that was cancelled never runs, and to cancel it again is nothing`() {
        var agenda = Agenda()
        let number = agenda.add(timer("gone"), at: moment(10))
        _ = agenda.add(timer("there"), at: moment(10))
        agenda.cancel(number)
        agenda.cancel(number)
        #expect(runDue(of: &agenda, at: 10) == ["there"])
        agenda.cancel(number)
    }

    @Test func `a timer that is cancelled when it is due, and has not had its turn, does not run`() {
        var agenda = Agenda()
        agenda.add(work("first"))
        let number = agenda.add(timer("gone"), at: moment(10))
        var due = agenda.takeDue(at: moment(10))
        due.removeFirst()
        agenda.cancel(number)
        agenda.giveBack(due)
        #expect(runDue(of: &agenda, at: 10) == [])
    }

    @Test func `I8: timers that were cancelled are not kept until their time has come`() {
        var agenda = Agenda()
        _ = agenda.add(timer("kept"), at: moment(5_000_000))
        for index in 0..<10_000 {
            let number = agenda.add(timer("\(index)"), at: moment(1_000_000 + UInt64(index)))
            agenda.cancel(number)
            #expect(agenda.size <= 200)
        }
        #expect(runDue(of: &agenda, at: 5_000_000) == ["kept"])
    }

    @Test func `at the end all timers are taken, due or not`() {
        var agenda = Agenda()
        _ = agenda.add(timer("one"), at: moment(10))
        let number = agenda.add(timer("two"), at: moment(20))
        agenda.cancel(number)
        for timer in agenda.takeTimers() { timer.drop() }
        #expect(done.withLockedValue { $0 } == ["drop one"])
        #expect(agenda.pause(from: moment(0)) == nil)
    }
}
