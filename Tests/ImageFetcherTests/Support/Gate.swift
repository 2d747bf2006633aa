import Foundation

/// Something that happens once and can be waited for, by threads and by tasks. Tests order what happens with these
/// and never with delays.
final class Gate: @unchecked Sendable {
    // Unchecked: everything below is only touched with the condition's lock held.
    private let condition = NSCondition()
    private var isOpen = false
    private var continuations: [CheckedContinuation<Void, Never>] = []

    func open() {
        condition.lock()
        isOpen = true
        let waiting = continuations
        continuations = []
        condition.broadcast()
        condition.unlock()
        for continuation in waiting { continuation.resume() }
    }

    /// Blocks the calling thread until the gate is open.
    func block() {
        condition.lock()
        while !isOpen { condition.wait() }
        condition.unlock()
    }

    /// Suspends until the gate is open.
    func opened() async {
        await withCheckedContinuation { continuation in
            condition.lock()
            let isOpen = isOpen
            if !isOpen { continuations.append(continuation) }
            condition.unlock()
            if isOpen { continuation.resume() }
        }
    }
}
