import ArgumentParser
import Fleet
import RESP

struct Status: FleetCommand {
    static let configuration = CommandConfiguration(
        abstract: "Show the hosts of the fleet: how far each has come, and when it was seen.")

    @Option(help: ArgumentHelp("A host that was not seen for so long is away.", valueName: "seconds"))
    var live = 30

    @OptionGroup var file: ConfigurationOption

    func run(in environment: [String: String]) async throws -> CInt {
        try await file.withStream(environment) { stream, _ in
            let hosts = try await stream.fleet(countingLag: true)
            FleetTable(hosts, live: live) { _ in "live" }.show()
            return 0
        }
    }
}

struct Forget: FleetCommand {
    static let configuration = CommandConfiguration(
        abstract: "Take a host that is gone for good out of the tables.",
        discussion: "One that is still there is back with its next heartbeat.")

    @Argument(help: "The host.")
    var host: String

    @OptionGroup var file: ConfigurationOption

    func run(in environment: [String: String]) async throws -> CInt {
        try await file.withStream(environment) { stream, _ in
            guard try await stream.forget(host: host) else {
                throw CommandFailure(CommandFailure.refused, "there is no such host")
            }
            return 0
        }
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
    var incarnation: String?
    /// When the entry that is asked about was published.
    var published: Int64

    func isLive(within seconds: Int) -> Bool { silence <= Int64(seconds) * 1_000 }

    func hasDone(_ entry: StreamID) -> Bool { state.hasDone(entry, publishedAt: published, in: incarnation) }
}

extension FleetStream {
    /// Every host, by name.
    /// - Parameters:
    ///   - entry: the one that is asked about.
    ///   - published: when.
    func fleet(
        _ entry: StreamID = .zero, publishedAt published: Int64 = 0, countingLag: Bool = false
    ) async throws(RedisError) -> [FleetHost] {
        let look = try await look(behind: entry)
        var hosts: [FleetHost] = []
        for (name, state) in try await hostStates().sorted(by: { $0.key < $1.key }) {
            var host = FleetHost(
                name: name, state: state, silence: max(0, look.time - state.time), lag: nil,
                incarnation: look.incarnation, published: published)
            if countingLag { host.lag = try await lag(behind: state.id) }
            hosts.append(host)
        }
        return hosts
    }
}

/// Hosts in lines, for people.
struct FleetTable {
    private let rows: [[String]]

    /// - Parameter state: of a host that is live.
    init(_ hosts: [FleetHost], live: Int, state: (FleetHost) -> String) {
        let head = ["host", "state", "position", "lag", "seen", "skipped"]
        rows =
            [head]
            + hosts.map { host in
                let lag =
                    host.lag.map { $0 > FleetStream.mostLag ? "more than \(FleetStream.mostLag)" : "\($0)" } ?? "-"
                return [
                    oneLine(host.name), host.isLive(within: live) ? state(host) : "away", "\(host.state.id)", lag,
                    "\(host.silence / 1_000) s ago", "\(host.state.skipped)",
                ]
            }
    }

    var text: String {
        let widths = rows[0].indices.map { column in rows.map { $0[column].count }.max() ?? 0 }
        return rows.map { row in
            zip(row, widths).map { $0 + String(repeating: " ", count: $1 - $0.count) }.joined(separator: "  ")
                .trimmingSuffix + "\n"
        }.joined()
    }

    func show() { print(text, terminator: "") }
}

extension String {
    fileprivate var trimmingSuffix: String {
        var text = self
        while text.last == " " { text.removeLast() }
        return text
    }
}
