import Glibc
import Synchronization
@_spi(Wire) import Thumbcache

/// How far the daemon is with what it was told to download, by its events.
final class WarmProgress: Sendable {
    private struct State {
        var missing: Set<ThumbcacheID>
        var changed = 0
        var isSubscribed = false
        /// Ticks since the last event.
        var quiet = 0
    }

    private static let tick = Duration.milliseconds(100)
    /// Of these there is an event for each image that comes. Behind so long a silence each is asked for.
    private static let quietTicks = 30

    private let state: Mutex<State>

    init(_ profiles: Set<ThumbcacheID>) { state = Mutex(State(missing: profiles)) }

    /// Profiles of which another image is held since, or none any more.
    var changed: Int { state.withLock { $0.changed } }

    func take(_ event: ThumbcacheEvent) {
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
        // A task that is cancelled finds out by what it asks next.
        _ = await Result { () async throws in try await Task.sleep(for: Self.tick) }
        state.withLock { $0.quiet += 1 }
    }

    func isMoving(since before: Int) -> Bool {
        state.withLock { $0.changed != before || $0.quiet < Self.quietTicks * 10 }
    }

    /// Without events it goes as well, but nobody sees how far it is.
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

extension Result where Failure == any Error {
    fileprivate init(_ body: () async throws(Failure) -> Success) async {
        do {
            self = .success(try await body())
        } catch {
            self = .failure(error)
        }
    }
}

/// A line on standard error that says how far something is: a bar where the cursor can be moved, else a line for each
/// tenth.
final class ProgressLine {
    private let total: Int
    private let terminal: Terminal
    private let isSilent: Bool
    private var most = 0
    private var tenths = 0

    init(total: Int, on terminal: Terminal, isSilent: Bool) {
        (self.total, self.terminal, self.isSilent) = (total, terminal, isSilent)
    }

    /// Never goes back: what was counted by events is counted again in the end.
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

    /// Makes room for another line.
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
            _ = try writeOn(text, to: STDERR_FILENO)
        } catch {
            // Nobody looks.
        }
    }
}
