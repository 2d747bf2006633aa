import ArgumentParser
import Fleet
import ThumbcacheProtocol

struct Status: FleetSubcommand {
    static let configuration = CommandConfiguration(
        abstract: "Show each host's position, backlog and last heartbeat.")

    @Option(help: ArgumentHelp("Time without a heartbeat after which a host is away.", valueName: "seconds"))
    var live = 30

    @OptionGroup var file: ConfigurationOption

    func validate() throws { try validateLive(live) }

    func run(in environment: [String: String]) async throws -> CInt {
        try await file.withStream(environment) { stream, configuration in
            var hosts = FleetView(try await stream.hostTable(), publishedAt: 0).hosts
            for index in hosts.indices { hosts[index].lag = try await stream.lag(after: hosts[index].state.id) }
            FleetTable(hosts, live: live) { _ in "live" }.show()
            if let damage = try await stream.snapshot(after: .zero, host: configuration.host).damage {
                throw CommandFailure(CommandFailure.refused, damage.sentence(stream.name))
            }
            return 0
        }
    }
}

struct Forget: FleetSubcommand {
    static let configuration = CommandConfiguration(
        abstract: "Remove a host that is gone for good from the table of hosts.",
        discussion: """
            logout and purge then no longer wait for it. Only remove a host whose daemon cannot start again with its \
            old disk. A running relay adds its host again with its next heartbeat.
            """)

    @Argument(help: "The host, as status shows it.")
    var host: String

    @OptionGroup var file: ConfigurationOption

    func run(in environment: [String: String]) async throws -> CInt {
        try await file.withStream(environment) { stream, _ in
            guard try await stream.forget(host: host) else {
                throw CommandFailure(CommandFailure.refused, "no host '\(oneLine(host))' in the table; see: status")
            }
            return 0
        }
    }
}

/// The table of hosts as text.
struct FleetTable {
    private let rows: [[String]]

    /// - Parameter state: the state shown for a live host.
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
