import Fleet
import LinuxSupport
import ThumbcacheProtocol

/// Whether every host has done an entry, as far as the table of hosts proves it.
///
/// A host that is missing in the table has agreed to nothing. Therefore a host counts until an administrator removes it,
/// and a stream with a new name proves nothing yet: what took the old stream may have taken the table with it, and live
/// hosts write their rows again within the window.
enum Completion: Equatable, Sendable {
    case done
    /// May become done soon.
    case pending(String)
    /// Becomes done when the named hosts are back, which is not worth waiting for.
    case away(String)

    /// - Parameters:
    ///   - window: seconds after which a host that was not seen is away.
    ///   - liveOnly: whether hosts that are away do not count.
    init(_ fleet: FleetView, _ entry: StreamID, window: Int, liveOnly: Bool) {
        let open = fleet.hosts.filter { !$0.hasDone(entry) }
        let (owing, away) = (open.filter { $0.isLive(within: window) }, open.filter { !$0.isLive(within: window) })
        let counted = liveOnly ? fleet.hosts.filter { $0.isLive(within: window) } : fleet.hosts
        if counted.isEmpty {
            self = .pending("no \(liveOnly ? "live " : "")host is in the table of hosts")
        } else if !owing.isEmpty {
            self = .pending("\(Self.names(owing)) not done yet")
        } else if !away.isEmpty, !liveOnly {
            self = .away(
                "\(Self.names(away)) not seen for \(window) seconds and not done; remove a host that is gone for good "
                    + "with: thumbcachectl fleet forget HOST; or count only live hosts with: --live-only")
        } else if fleet.age <= Self.milliseconds(window) {
            self = .pending(
                "the stream has had its present name for less than \(window) seconds: hosts may be missing in the table; "
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

/// The hosts as the stream's server knows them at one moment.
struct FleetView: Sendable, Equatable {
    var hosts: [FleetHost]
    /// Milliseconds since the stream got its name; 0 where it has none, or one of a later moment.
    var age: Int64

    /// - Parameter published: when the entry that is asked about was published.
    init(_ table: HostTable, publishedAt published: Int64) {
        hosts = table.states.map { name, row in
            // Such a row would have done every entry.
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

/// A host as the stream's server knows it at one moment.
struct FleetHost: Sendable, Equatable {
    var name: String
    var state: HostState
    /// Milliseconds since it was seen.
    var silence: Int64
    /// Entries that it has yet to do; nil where that was not counted.
    var lag: Int?
    var streamIdentity: String?
    /// When the entry that is asked about was published.
    var published: Int64

    func isLive(within seconds: Int) -> Bool { silence <= Completion.milliseconds(seconds) }

    func hasDone(_ entry: StreamID) -> Bool { state.hasDone(entry, publishedAt: published, in: streamIdentity) }
}
