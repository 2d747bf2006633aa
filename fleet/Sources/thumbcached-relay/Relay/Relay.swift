import Fleet
import LinuxSupport
import Logging
@_spi(Wire) import Thumbcache

/// Follows the stream and forwards its entries to the daemon.
///
/// ``Decision`` chooses each step. Durability depends on the order: the daemon confirms an entry, the position is
/// saved, and only then is the entry acknowledged. An interrupted step is repeated, which is harmless.
struct Relay {
    private let configuration: RelayConfiguration
    private let connector: RedisConnector
    private let sink: any CommandSink
    private let file: PositionFile
    private let log: Logger
    /// Milliseconds of CLOCK_BOOTTIME, which includes suspend.
    private let now: @Sendable () -> Int64

    /// The position on disk.
    private var saved: Position?
    private var outage: OutageWatch
    /// Failures since a position was saved or `on-outage` was applied.
    private(set) var daemonFailures = 0
    private var skipped = 0
    /// Identifies this process in the table of hosts.
    private let process = Hex.text((0..<4).map { _ in UInt8.random(in: .min ... .max) })
    /// Whether this process has written the host's row on this connection. Before that, the row may be that of an
    /// earlier process.
    private var hasAcknowledged = false
    /// The gap that was logged last; nil once it is closed.
    private var openGap: Gap?
    /// The state of a damaged stream for which the policy was applied.
    private var handledDamage: StreamDamage?

    private static let backoff = Backoff(first: .milliseconds(100), longest: .seconds(5))

    init(
        _ configuration: RelayConfiguration, connector: RedisConnector, sink: any CommandSink, file: PositionFile,
        log: Logger, now: @escaping @Sendable () -> Int64
    ) throws {
        (self.configuration, self.connector, self.sink) = (configuration, connector, sink)
        (self.file, self.log, self.now) = (file, log, now)
        saved = try file.load()
        outage = OutageWatch(grace: configuration.grace, now: now())
    }

    /// Returns when its task is cancelled.
    mutating func run() async {
        var failures = 0
        while !Task.isCancelled {
            let before = now()
            do throws(RedisError) {
                let connection = try await connector.connect()
                defer { connection.close() }
                try await follow(FleetStream(connection: connection, name: configuration.stream))
            } catch {
                // A connection that worked is retried with the shortest pause.
                failures = outage.hasContact(since: before) ? 1 : failures + 1
                log.warning("the stream cannot be followed", metadata: ["reason": "\(error)"])
            }
            await actOnOutage()
            await pause(after: failures)
        }
    }

    // MARK: The stream

    private mutating func follow(_ stream: FleetStream) async throws(RedisError) {
        log.notice("connected", metadata: ["server": "\(stream.connection.address)", "host": "\(configuration.host)"])
        hasAcknowledged = false
        while !Task.isCancelled {
            let snapshot = try await stream.snapshot(after: saved?.id ?? .zero, host: configuration.host)
            if hasAcknowledged, let row = snapshot.row, row.process != process {
                log.error(
                    "another relay uses this host name; each hides the other's backlog",
                    metadata: ["host": "\(configuration.host)"])
            }
            switch Decision(saved, snapshot, configuration.onGap) {
            case .reject(let damage):
                try await acknowledge(stream, snapshot, at: .zero)
                if damage != handledDamage {
                    let isDone = await whileReportingBusy(stream, snapshot, at: .zero) { relay in
                        await relay.act(relay.configuration.onGap)
                    }
                    if isDone { handledDamage = damage }
                }
                throw RedisError(damage.sentence(configuration.stream))
            case .nameStream(let moment, let loss):
                if let loss {
                    log.warning(
                        "stream lost entries; setting a new identity",
                        metadata: ["why": "\(loss.rawValue)"])
                }
                let random = (0..<8).map { _ in UInt8.random(in: .min ... .max) }
                let name = StreamIdentity.name(after: moment, now: snapshot.time, random: random)
                try await stream.nameStream(name, insteadOf: snapshot.streamIdentity)
            case .closeGap(let gap, let then):
                // The table may have lost this host; without its row, publishers would not wait for it.
                try await acknowledge(stream, snapshot, at: .zero)
                let isClosed = await whileReportingBusy(stream, snapshot, at: .zero) { relay in
                    await relay.close(gap, then)
                }
                if isClosed {
                    // Without an acknowledgment of this position, the next decision may be the same gap.
                    try await acknowledge(stream, snapshot, at: then.id)
                    continue
                }
                outage.contact(at: now())
                await pause(after: daemonFailures)
            case .execute(let entries, let then):
                let isDone = await whileReportingBusy(stream, snapshot, at: saved?.id ?? .zero) { relay in
                    await relay.execute(entries, then)
                }
                try await acknowledge(stream, snapshot, at: saved?.id ?? .zero)
                outage.contact(at: now())
                if !isDone {
                    await pause(after: daemonFailures)
                } else if entries.count < FleetStream.mostEntries {
                    // Those were all entries; an immediate snapshot would find none.
                    try await waitForMore(stream)
                }
            case .wait:
                try await acknowledge(stream, snapshot, at: saved?.id ?? .zero)
                outage.contact(at: now())
                try await waitForMore(stream)
            }
        }
    }

    private func waitForMore(_ stream: FleetStream) async throws(RedisError) {
        try await stream.wait(after: saved?.id ?? .zero, .milliseconds(configuration.heartbeat))
    }

    private mutating func acknowledge(_ stream: FleetStream, _ snapshot: StreamSnapshot, at id: StreamID)
        async throws(RedisError)
    {
        try await stream.acknowledge(host: configuration.host, state(snapshot, at: id))
        hasAcknowledged = true
    }

    private func state(_ snapshot: StreamSnapshot, at id: StreamID) -> HostState {
        // An invalid identity could have any length and characters.
        let streamIdentity = snapshot.streamIdentity.flatMap { StreamIdentity.isOne($0) ? $0 : nil } ?? "-"
        return HostState(
            id: id, time: snapshot.time, streamIdentity: streamIdentity, skipped: skipped, process: process)
    }

    /// Runs `work` with heartbeats, so that a host with a slow logout does not appear away.
    private mutating func whileReportingBusy(
        _ stream: FleetStream, _ snapshot: StreamSnapshot, at id: StreamID, _ work: (inout Relay) async -> Bool
    ) async -> Bool {
        let heartbeat = Heartbeat(
            stream, host: configuration.host, state(snapshot, at: id), every: configuration.heartbeat, log)
        let isDone = await work(&self)
        await heartbeat.end()
        return isDone
    }

    /// Returns whether all entries were processed and the position saved. After a failure, saves the position of the last
    /// processed entry.
    mutating func execute(_ entries: [StreamEntry], _ then: Position) async -> Bool {
        var (done, unknown) = (0, 0)
        do throws(DeliveryError) {
            for entry in entries {
                var reason: String?
                switch entry.command {
                case .success(let command): reason = try await sink.execute(command)
                case .failure(let error): reason = "it \(error)"
                }
                if let reason {
                    unknown += 1
                    log.warning(
                        "invalid entry skipped", metadata: ["id": "\(entry.id)", "reason": "\(reason)"])
                } else {
                    done += 1
                }
            }
        } catch {
            // Without this position, each retry would execute the entries before the failed one again.
            let processed = entries.prefix(done + unknown)
            if !processed.isEmpty, let saved {
                guard save(saved.after(processed)) else { return false }
                skipped += unknown
            }
            return failed(error.description)
        }
        guard save(then) else { return false }
        skipped += unknown
        log.info(
            "entries processed", metadata: ["commands": "\(done)", "skipped": "\(unknown)", "up-to": "\(then.id)"])
        return true
    }

    mutating func close(_ gap: Gap, _ then: Position) async -> Bool {
        if openGap != gap {
            log.warning(
                "logouts may have been missed",
                metadata: ["why": "\(gap.rawValue)", "on-gap": "\(configuration.onGap.rawValue)"])
            openGap = gap
        }
        guard await act(configuration.onGap), save(then) else { return false }
        openGap = nil
        log.notice("gap closed", metadata: ["up-to": "\(then.id)"])
        return true
    }

    // MARK: Without a stream

    private mutating func actOnOutage() async {
        guard configuration.onOutage != .ignore, outage.isDue(at: now()) else { return }
        guard await act(configuration.onOutage) else { return }
        daemonFailures = 0
        outage.handled()
        log.warning(
            "stream unreachable for longer than the grace period",
            metadata: ["on-outage": "\(configuration.onOutage.rawValue)", "grace": "\(configuration.grace) ms"])
    }

    // MARK: Steps

    /// Applies a policy to all users. Returns whether the daemon confirmed it.
    private mutating func act(_ policy: GapPolicy) async -> Bool {
        do throws(DeliveryError) {
            switch policy {
            case .ignore: break
            case .logoutAll: try await executeOrThrow(.logOutAll)
            case .purgeAll: try await executeOrThrow(.purgeAll)
            }
            return true
        } catch {
            return failed(error.description)
        }
    }

    /// Performs a command that no daemon may reject.
    private func executeOrThrow(_ command: FleetCommand) async throws(DeliveryError) {
        if let reason = try await sink.execute(command) { throw DeliveryError(description: reason) }
    }

    private mutating func save(_ position: Position) -> Bool {
        do throws(SystemError) {
            try file.save(position)
            (saved, daemonFailures) = (position, 0)
            return true
        } catch {
            return failed("cannot save the position: \(error)")
        }
    }

    private mutating func failed(_ reason: String) -> Bool {
        daemonFailures += 1
        log.error("command failed; retrying", metadata: ["reason": "\(reason)"])
        return false
    }

    private func pause(after failures: Int) async {
        do {
            try await Task.sleep(for: Self.backoff.pause(after: max(1, failures), random: Double.random(in: 0...1)))
        } catch {
            // Cancelled; the loop checks for that.
        }
    }
}
