import Foundation

/// Runs a body on several threads and waits for all of them. Throws the first error after the last thread has ended.
func concurrently(_ count: Int, _ body: @escaping @Sendable (Int) throws -> Void) throws {
    let group = ThreadGroup(count, body)
    try group.wait()
}

/// Threads that are started and waited for together.
final class ThreadGroup: Sendable {
    private struct State: Sendable {
        var running: Int
        var errors: [String] = []
    }

    private let state: Watched<State>

    init(_ count: Int, _ body: @escaping @Sendable (Int) throws -> Void) {
        state = Watched(State(running: count))
        for index in 0..<count {
            Thread.detachNewThread { [state] in
                var problem: String?
                do { try body(index) } catch { problem = "thread \(index): \(error)" }
                state.change { state in
                    state.running -= 1
                    if let problem { state.errors.append(problem) }
                }
            }
        }
    }

    func wait(within seconds: Double = 300) throws {
        guard state.wait(seconds, until: { $0.running == 0 }) else {
            throw Failure("\(state.current.running) threads did not end within \(seconds) s")
        }
        if let first = state.current.errors.first {
            throw Failure("\(state.current.errors.count) threads failed; \(first)")
        }
    }
}
