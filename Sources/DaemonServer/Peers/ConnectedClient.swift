import NIOConcurrencyHelpers
import NIOCore
import Synchronization

/// A connection as others see it: who lists them, and who looks for the one that is idle longest.
final class ConnectedClient: Sendable {
    /// What it calls itself: each at most ``CommandLimits/name`` printable characters without spaces.
    struct Labels: Sendable {
        var name = ""
        var library = ""
        var libraryVersion = ""
    }

    /// The number that the peer is told. It counts the connections of its account, and says nothing of others'.
    let id: UInt64
    let peer: Peer
    private let since = NIODeadline.now()
    private let heard = Atomic<UInt64>(0)
    private let current = NIOLockedValueBox(Labels())
    // Each has one writer, its loop: a load and a store do, and no core waits for another.
    private let commands = Atomic<Int>(0)
    private let hits = Atomic<Int>(0)
    private let misses = Atomic<Int>(0)
    private let waits = Atomic<Bool>(false)

    init(id: UInt64, peer: Peer) {
        self.id = id
        self.peer = peer
    }

    /// Called on its loop.
    func heard(at time: NIODeadline) {
        heard.store(time.uptimeNanoseconds, ordering: .relaxed)
    }

    /// When it was last heard of, in nanoseconds.
    var lastHeard: UInt64 { heard.load(ordering: .relaxed) }

    /// Called on its loop.
    /// - Parameter commands: of all that it has sent so far; fewer than there were say nothing.
    func asked(_ commands: Int) {
        if commands > self.commands.load(ordering: .relaxed) { self.commands.store(commands, ordering: .relaxed) }
    }

    /// Called on its loop.
    /// - Parameters:
    ///   - hits: images that were served from what was held.
    ///   - misses: requests for images that were answered otherwise.
    func served(hits: Int = 0, misses: Int = 0) {
        if hits > 0 { self.hits.store(self.hits.load(ordering: .relaxed) &+ hits, ordering: .relaxed) }
        if misses > 0 { self.misses.store(self.misses.load(ordering: .relaxed) &+ misses, ordering: .relaxed) }
    }

    /// Called on its loop: whether requests of it wait for images.
    func waits(_ waits: Bool) { self.waits.store(waits, ordering: .relaxed) }

    /// Whether it waits for images.
    var isWaiting: Bool { waits.load(ordering: .relaxed) }

    var counts: ClientCounts {
        ClientCounts(
            commands: commands.load(ordering: .relaxed), hits: hits.load(ordering: .relaxed),
            misses: misses.load(ordering: .relaxed))
    }

    var labels: Labels { current.withLockedValue { $0 } }

    func name(_ name: String) { current.withLockedValue { $0.name = name } }

    /// - Parameter key: `lib-name` or `lib-ver`.
    func label(_ key: String, _ value: String) {
        current.withLockedValue { labels in
            if key == "lib-name" { labels.library = value } else { labels.libraryVersion = value }
        }
    }

    /// A line of CLIENT LIST.
    func line(at now: NIODeadline) -> String {
        let labels = labels
        let last = max(NIODeadline.uptimeNanoseconds(lastHeard), since)
        return "id=\(id) uid=\(peer.uid) pid=\(peer.pid) admin=\(peer.isAdmin ? 1 : 0) name=\(labels.name) "
            + "age=\((now - since).nanoseconds / 1_000_000_000) idle=\((now - last).nanoseconds / 1_000_000_000) "
            + "lib-name=\(labels.library) lib-ver=\(labels.libraryVersion)\n"
    }
}
