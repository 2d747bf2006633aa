import Glibc
import Synchronization
@_spi(Wire) import Thumbcache

/// Follows the progress of WARM by the daemon's events.
final class WarmProgress: Sendable {
    private struct State {
        var missing: Set<ThumbcacheID>
        var changed = 0
        var isSubscribed = false
        /// Ticks since the last relevant event.
        var quiet = 0
    }

    private static let tick = Duration.milliseconds(100)
    /// Ticks without an event after which each profile is queried instead: a failed download causes no event.
    private static let quietTicks = 30

    private let state: Mutex<State>

    init(_ profiles: Set<ThumbcacheID>) { state = Mutex(State(missing: profiles)) }

    var changed: Int { state.withLock { $0.changed } }

    func record(_ event: ThumbcacheEvent) {
        state.withLock { state in
            switch event {
            case .subscribed: state.isSubscribed = true
            case .update(_, let profile, _):
                guard state.missing.remove(profile) != nil else { return }
                (state.changed, state.quiet) = (state.changed + 1, 0)
            default: break
            }
        }
    }

    func pause() async {
        do {
            try await Task.sleep(for: Self.tick)
        } catch {
            // A cancelled task notices at its next request.
        }
        state.withLock { $0.quiet += 1 }
    }

    func isMoving(since before: Int) -> Bool {
        state.withLock { $0.changed != before || $0.quiet < Self.quietTicks * 10 }
    }

    /// Gives up after some seconds: without events, only the progress display is missing.
    func waitForSubscription() async {
        for _ in 0..<Self.quietTicks {
            if state.withLock({ $0.isSubscribed }) { return }
            await pause()
        }
    }

    func waitUntilQuiet(_ queued: Int, _ line: ProgressLine) async {
        state.withLock { $0.quiet = 0 }
        while state.withLock({ $0.changed < queued && $0.quiet < Self.quietTicks }) {
            await pause()
            line.show(changed)
        }
    }
}

/// Progress on standard error: a bar if the cursor can be moved, or else a line per tenth.
final class ProgressLine {
    private let total: Int
    private let terminal: Terminal
    private let isSilent: Bool
    private var most = 0
    private var tenths = 0

    init(total: Int, on terminal: Terminal, isSilent: Bool) {
        (self.total, self.terminal, self.isSilent) = (total, terminal, isSilent)
    }

    /// Ignores lower values, since the final count begins at 0 again.
    func show(_ done: Int) {
        guard !isSilent, done > most else { return }
        most = done
        if terminal.hasCursor {
            put("\r" + Self.bar(done, of: total, columns: terminal.size.columns) + "\u{1b}[K")
        } else if done * 10 / total > tenths {
            tenths = done * 10 / total
            put("\(done) of \(total)\n")
        }
    }

    func clear() {
        if !isSilent, terminal.hasCursor { put("\r\u{1b}[K") }
    }

    func end() { clear() }

    static func bar(_ done: Int, of total: Int, columns: Int) -> String {
        let figures = " \(done) of \(total)"
        let width = min(50, columns - figures.count - 3)
        guard width >= 5 else { return String(figures.dropFirst()) }
        let full = width * done / max(total, 1)
        return "[" + String(repeating: "#", count: full) + String(repeating: ".", count: width - full) + "]" + figures
    }

    private func put(_ text: String) {
        do throws(Failure) {
            _ = try writeUnlessClosed(text, to: STDERR_FILENO)
        } catch {
            // Progress output is optional.
        }
    }
}
