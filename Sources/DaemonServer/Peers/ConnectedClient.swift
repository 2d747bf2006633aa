import NIOConcurrencyHelpers
import NIOCore
import Synchronization

/// The state of a connection that other threads read, for CLIENT LIST, INFO and eviction.
final class ConnectedClient: Sendable {
    /// Names set by the client: each at most ``CommandLimits/name`` printable characters without spaces.
    struct Labels: Sendable {
        var name = ""
        var library = ""
        var libraryVersion = ""
    }

    /// The id shown to clients. Counts the connections of the account only, so it reveals nothing of other accounts.
    let id: UInt64
    let peer: Peer
    private let since = NIODeadline.now()
    private let input = Atomic<UInt64>(0)
    private let current = NIOLockedValueBox(Labels())
    // Only the connection's loop writes, so a load and a store suffice, without a locked instruction.
    private let commands = Atomic<Int>(0)
    private let hits = Atomic<Int>(0)
    private let misses = Atomic<Int>(0)
    private let waits = Atomic<Bool>(false)

    init(id: UInt64, peer: Peer) {
        self.id = id
        self.peer = peer
    }

    func recordInput(at time: NIODeadline) {
        input.store(time.uptimeNanoseconds, ordering: .relaxed)
    }

    /// The time of the latest input, in nanoseconds.
    var lastInput: UInt64 { input.load(ordering: .relaxed) }

    /// Ignores a smaller total than before.
    func record(commands: Int) {
        if commands > self.commands.load(ordering: .relaxed) { self.commands.store(commands, ordering: .relaxed) }
    }

    func record(hits: Int = 0, misses: Int = 0) {
        if hits > 0 { self.hits.store(self.hits.load(ordering: .relaxed) &+ hits, ordering: .relaxed) }
        if misses > 0 { self.misses.store(self.misses.load(ordering: .relaxed) &+ misses, ordering: .relaxed) }
    }

    func setWaiting(_ waits: Bool) { self.waits.store(waits, ordering: .relaxed) }

    var isWaiting: Bool { waits.load(ordering: .relaxed) }

    var counts: ClientCounts {
        ClientCounts(
            commands: commands.load(ordering: .relaxed), hits: hits.load(ordering: .relaxed),
            misses: misses.load(ordering: .relaxed))
    }

    var labels: Labels { current.withLockedValue { $0 } }

    func setName(_ name: String) { current.withLockedValue { $0.name = name } }

    /// - Parameter key: `lib-name` or `lib-ver`.
    func setLabel(_ key: String, _ value: String) {
        current.withLockedValue { labels in
            if key == "lib-name" { labels.library = value } else { labels.libraryVersion = value }
        }
    }

    /// A line of CLIENT LIST.
    func line(at now: NIODeadline) -> String {
        let labels = labels
        let last = max(NIODeadline.uptimeNanoseconds(lastInput), since)
        return "id=\(id) uid=\(peer.uid) pid=\(peer.pid) admin=\(peer.isAdmin ? 1 : 0) name=\(labels.name) "
            + "age=\((now - since).nanoseconds / 1_000_000_000) idle=\((now - last).nanoseconds / 1_000_000_000) "
            + "lib-name=\(labels.library) lib-ver=\(labels.libraryVersion)\n"
    }
}
