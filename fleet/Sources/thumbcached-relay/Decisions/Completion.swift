import Fleet
import LinuxSupport
import ThumbcacheProtocol

/// Whether every host has processed an entry, according to the table of hosts.
///
/// A host counts until an administrator removes it. A new stream identity proves nothing within the window: the table
/// may have been lost with the old stream, and live hosts need that time to write their rows again.
enum Completion: Equatable, Sendable {
    case done
    /// Hosts that are live have yet to process the entry.
    case pending(String)
    /// Only hosts that are away have yet to process the entry.
    case away(String)

    /// - Parameters:
    ///   - window: seconds without a heartbeat after which a host is away.
    ///   - liveOnly: whether to ignore hosts that are away.
    init(_ fleet: FleetView, _ entry: StreamID, window: Int, liveOnly: Bool) {
        let open = fleet.hosts.filter { !$0.hasProcessed(entry) }
        let (owing, away) = (open.filter { $0.isLive(within: window) }, open.filter { !$0.isLive(within: window) })
        let counted = liveOnly ? fleet.hosts.filter { $0.isLive(within: window) } : fleet.hosts
        if counted.isEmpty {
            self = .pending("no \(liveOnly ? "live " : "")host is in the table of hosts")
        } else if !owing.isEmpty {
            self = .pending("\(Self.names(owing)) pending")
        } else if !away.isEmpty, !liveOnly {
            self = .away(
                "\(Self.names(away)) not seen for \(window) seconds and not done; remove a host that is gone for good "
                    + "with: thumbcachectl fleet forget HOST; or count only live hosts with: --live-only")
        } else if fleet.age <= Self.milliseconds(window) {
            self = .pending(
                "the stream's identity is younger than \(window) seconds: hosts may be missing from the table; "
                    + "repeat the command after that time")
        } else {
            self = .done
        }
    }

    private static let mostNames = 5

    private static func names(_ hosts: [FleetHost]) -> String {
        let names = hosts.prefix(mostNames).map { oneLine($0.name) }.joined(separator: ", ")
        let more = hosts.count > mostNames ? " and \(hosts.count - mostNames) more" : ""
        return "\(names)\(more):"
    }

    static func milliseconds(_ seconds: Int) -> Int64 { Int64(seconds).saturatingMultiply(1_000) }
}

/// The table of hosts, with implausible rows replaced.
struct FleetView: Sendable, Equatable {
    var hosts: [FleetHost]
    /// Milliseconds since the stream's identity was created; 0 if it is missing or in the future.
    var age: Int64

    /// - Parameter published: publication time of the entry in question.
    init(_ table: HostTable, publishedAt published: Int64) {
        hosts = table.states.map { name, row in
            // A row from the future would claim every entry.
            let isPossible = [row.id.milliseconds, UInt64(max(0, row.time))].allSatisfy {
                StreamDamage.isPossible($0, at: table.time)
            }
            let state = isPossible ? row : .unknown
            return FleetHost(
                name: name, state: state, silence: max(0, table.time.saturatingSubtract(state.seen)),
                streamIdentity: table.streamIdentity, published: published)
        }
        let start = table.streamIdentity.flatMap { StreamIdentity.isOne($0) ? StreamIdentity.start($0) : nil } ?? .max
        age = max(0, table.time.saturatingSubtract(Int64(clamping: start)))
    }
}

/// A row of the table of hosts.
struct FleetHost: Sendable, Equatable {
    var name: String
    var state: HostState
    /// Milliseconds since the last heartbeat.
    var silence: Int64
    /// Entries not yet processed; nil if not counted.
    var lag: Int?
    var streamIdentity: String?
    /// Publication time of the entry in question.
    var published: Int64

    func isLive(within seconds: Int) -> Bool { silence <= Completion.milliseconds(seconds) }

    func hasProcessed(_ entry: StreamID) -> Bool {
        state.hasProcessed(entry, publishedAt: published, in: streamIdentity)
    }
}
