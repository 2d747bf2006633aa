import DequeModule
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import SocketLoops

@Suite struct LoopTasksTests {
    private let done = NIOLockedValueBox<[String]>([])

    private func work(_ name: String) -> LoopTasks.Work {
        { [done] in done.withLockedValue { $0.append(name) } }
    }

    private func timer(_ name: String) -> LoopTasks.Timer {
        let (run, drop) = (work(name), work("drop \(name)"))
        return { isDue in isDue ? run() : drop() }
    }

    private func moment(_ milliseconds: UInt64) -> NIODeadline {
        .uptimeNanoseconds(milliseconds * 1_000_000)
    }

    private func runDue(of tasks: inout LoopTasks, at milliseconds: UInt64) -> [String] {
        for item in tasks.removeDue(at: moment(milliseconds)) { tasks.work(of: item)?() }
        return done.withLockedValue { done in
            defer { done = [] }
            return done
        }
    }

    @Test func `tasks run in order, followed by timers by deadline`() {
        var tasks = LoopTasks()
        _ = tasks.add(timer("second"), at: moment(20))
        _ = tasks.add(timer("first"), at: moment(10))
        _ = tasks.add(timer("also second"), at: moment(20))
        _ = tasks.add(timer("later"), at: moment(21))
        tasks.add(work("a"))
        tasks.add(work("b"))
        #expect(runDue(of: &tasks, at: 20) == ["a", "b", "first", "second", "also second"])
        #expect(runDue(of: &tasks, at: 20) == [])
        #expect(runDue(of: &tasks, at: 21) == ["later"])
    }

    @Test func `the pause is zero with due tasks, else until the next timer, else unlimited`() {
        var tasks = LoopTasks()
        #expect(tasks.pause(from: moment(0)) == nil)
        _ = tasks.add(timer("later"), at: moment(30))
        #expect(tasks.pause(from: moment(10)) == .milliseconds(20))
        #expect(tasks.pause(from: moment(40)) == .zero)
        tasks.add(work("now"))
        #expect(tasks.pause(from: moment(10)) == .zero)
        _ = tasks.removeDue(at: moment(40))
        #expect(tasks.pause(from: moment(40)) == nil)
    }

    @Test func `prepended tasks run before later ones`() {
        var tasks = LoopTasks()
        for name in ["a", "b", "c"] { tasks.add(work(name)) }
        var due = tasks.removeDue(at: moment(0))
        due.removeFirst()
        tasks.add(work("d"))
        tasks.prepend(due)
        #expect(runDue(of: &tasks, at: 0) == ["b", "c", "d"])
    }

    @Test func `a cancelled timer does not run, and can be cancelled again`() {
        var tasks = LoopTasks()
        let number = tasks.add(timer("gone"), at: moment(10))
        _ = tasks.add(timer("there"), at: moment(10))
        tasks.cancel(number)
        tasks.cancel(number)
        #expect(runDue(of: &tasks, at: 10) == ["there"])
        tasks.cancel(number)
    }

    @Test func `a due timer can be cancelled before it runs`() {
        var tasks = LoopTasks()
        tasks.add(work("first"))
        let number = tasks.add(timer("gone"), at: moment(10))
        var due = tasks.removeDue(at: moment(10))
        due.removeFirst()
        tasks.cancel(number)
        tasks.prepend(due)
        #expect(runDue(of: &tasks, at: 10) == [])
    }

    @Test func `I8: cancelled timers are removed before their deadline`() {
        var tasks = LoopTasks()
        _ = tasks.add(timer("kept"), at: moment(5_000_000))
        for index in 0..<10_000 {
            let number = tasks.add(timer("\(index)"), at: moment(1_000_000 + UInt64(index)))
            tasks.cancel(number)
            #expect(tasks.size <= 200)
        }
        #expect(runDue(of: &tasks, at: 5_000_000) == ["kept"])
    }

    @Test func `removeTimers returns all timers, due or not`() {
        var tasks = LoopTasks()
        _ = tasks.add(timer("one"), at: moment(10))
        let number = tasks.add(timer("two"), at: moment(20))
        tasks.cancel(number)
        for timer in tasks.removeTimers() { timer(false) }
        #expect(done.withLockedValue { $0 } == ["drop one"])
        #expect(tasks.pause(from: moment(0)) == nil)
    }
}
