import Fleet
import LinuxSupport
import Logging
@_spi(Wire) import Thumbcache

/// Follows the stream, and has the daemon do what its entries say.
///
/// What is to be done ``Decision`` says; here it is done. The order is what the promise rests on: an entry is carried
/// out, the daemon has given its receipt, the position is durable, and only then is the entry acknowledged. Whatever is
/// cut off in between is done once more, which is harmless.
struct Relay {
    private let configuration: RelayConfiguration
    private let connector: RedisConnector
    private let orders: any CommandSink
    private let file: PositionFile
    private let log: Logger
    /// Milliseconds of a clock that nobody sets and that does not stop while the machine sleeps.
    private let now: @Sendable () -> Int64

    /// As it is on disk.
    private var saved: Position?
    private var outage: OutageWatch
    /// In a row.
    private var daemonFailures = 0
    private var skipped = 0
    /// Of this process, as others see it.
    private let process = Hex.text((0..<4).map { _ in UInt8.random(in: .min ... .max) })
    /// Whether the host's place in the table was this process's already, on this connection: a table that was restored
    /// may have what a process before this one said.
    private var hasAcknowledged = false
    /// The gap that the log has told of and that is not made up for.
    private var openGap: Gap?
    /// The state of a damaged stream for which the policy's action has its receipt.
    private var handledDamage: StreamDamage?

    private static let backoff = Backoff(first: .milliseconds(100), longest: .seconds(5))

    init(
        _ configuration: RelayConfiguration, connector: RedisConnector, orders: any CommandSink, file: PositionFile,
        log: Logger, now: @escaping @Sendable () -> Int64
    ) throws {
        (self.configuration, self.connector, self.orders) = (configuration, connector, orders)
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
                // One that worked for a while is tried again at once.
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
            let look = try await stream.look(behind: saved?.id ?? .zero)
            switch Decision(saved, look, configuration.onGap) {
            case .reject(let damage):
                try await acknowledge(stream, look, at: .zero)
                if damage != handledDamage {
                    let isDone = await showingBusy(stream, look, at: .zero) { relay in
                        await relay.act(relay.configuration.onGap)
                    }
                    if isDone { handledDamage = damage }
                }
                throw RedisError(damage.sentence(configuration.stream))
            case .nameStream(let moment, let loss):
                if let loss {
                    log.warning(
                        "the stream lost what was read here: it gets a new name, by which every host learns of it",
                        metadata: ["why": "\(loss.rawValue)"])
                }
                let random = (0..<8).map { _ in UInt8.random(in: .min ... .max) }
                let name = StreamIdentity.name(after: moment, now: look.time, random: random)
                try await stream.nameStream(name, insteadOf: look.streamIdentity)
            case .closeGap(let gap, let then):
                // The table may have lost this host. A publisher must not take the others for the whole fleet.
                try await acknowledge(stream, look, at: .zero)
                if await showingBusy(stream, look, at: .zero, { relay in await relay.close(gap, then) }) { continue }
                outage.contact(at: now())
                await pause(after: daemonFailures)
            case .carryOut(let entries, let then):
                let isDone = await showingBusy(stream, look, at: saved?.id ?? .zero) { relay in
                    await relay.carryOut(entries, then)
                }
                try await acknowledge(stream, look, at: saved?.id ?? .zero)
                outage.contact(at: now())
                if !isDone {
                    await pause(after: daemonFailures)
                } else if entries.count < FleetStream.mostEntries {
                    // Those were all. Another look at once would find nothing and say the same once more.
                    try await waitForMore(stream)
                }
            case .wait:
                try await acknowledge(stream, look, at: saved?.id ?? .zero)
                outage.contact(at: now())
                try await waitForMore(stream)
            }
        }
    }

    private func waitForMore(_ stream: FleetStream) async throws(RedisError) {
        try await stream.wait(behind: saved?.id ?? .zero, .milliseconds(configuration.heartbeat))
    }

    private mutating func acknowledge(_ stream: FleetStream, _ look: StreamSnapshot, at id: StreamID)
        async throws(RedisError)
    {
        let before = try await stream.acknowledge(host: configuration.host, state(look, at: id))
        if hasAcknowledged, let before, before.process != process {
            log.error(
                "another relay has this host's name: what one of them owes does not show",
                metadata: ["host": "\(configuration.host)"])
        }
        hasAcknowledged = true
    }

    private func state(_ look: StreamSnapshot, at id: StreamID) -> HostState {
        // A name that is not one of ours could have any length and any characters.
        let streamIdentity = look.streamIdentity.flatMap { StreamIdentity.isOne($0) ? $0 : nil } ?? "-"
        return HostState(id: id, time: look.time, streamIdentity: streamIdentity, skipped: skipped, process: process)
    }

    /// Works, and meanwhile repeats the host's row: a host with a slow logout must not look like one that is away.
    private mutating func showingBusy(
        _ stream: FleetStream, _ look: StreamSnapshot, at id: StreamID, _ work: (inout Relay) async -> Bool
    ) async -> Bool {
        let heartbeat = Heartbeat(
            stream, host: configuration.host, state(look, at: id), every: configuration.heartbeat, log)
        let isDone = await work(&self)
        await heartbeat.end()
        return isDone
    }

    /// Whether all of it is done and on record.
    private mutating func carryOut(_ entries: [StreamEntry], _ then: Position) async -> Bool {
        var (done, unknown) = (0, 0)
        do throws(OrderTrouble) {
            for entry in entries {
                var reason: String?
                switch entry.order {
                case .success(let order): reason = try await orders.carryOut(order)
                case .failure(let error): reason = "it \(error)"
                }
                if let reason {
                    unknown += 1
                    log.warning(
                        "an entry is no order and was skipped", metadata: ["id": "\(entry.id)", "reason": "\(reason)"])
                } else {
                    done += 1
                }
            }
        } catch {
            return failed(error.description)
        }
        guard save(then) else { return false }
        skipped += unknown
        log.info("carried out", metadata: ["orders": "\(done)", "skipped": "\(unknown)", "up-to": "\(then.id)"])
        return true
    }

    private mutating func close(_ gap: Gap, _ then: Position) async -> Bool {
        if openGap != gap {
            log.warning(
                "log-outs may have been missed",
                metadata: ["why": "\(gap.rawValue)", "on-gap": "\(configuration.onGap.rawValue)"])
            openGap = gap
        }
        guard await act(configuration.onGap), save(then) else { return false }
        openGap = nil
        log.notice("what may have been missed is made up for", metadata: ["up-to": "\(then.id)"])
        return true
    }

    // MARK: Without a stream

    private mutating func actOnOutage() async {
        guard configuration.onOutage != .ignore, outage.isDue(at: now()) else { return }
        guard await act(configuration.onOutage) else { return }
        outage.handled()
        log.warning(
            "there was no connection to the stream for too long",
            metadata: ["on-outage": "\(configuration.onOutage.rawValue)", "grace": "\(configuration.grace) ms"])
    }

    // MARK: Steps

    /// Does to everybody what a policy says. Whether there is a receipt.
    private mutating func act(_ policy: GapPolicy) async -> Bool {
        do throws(OrderTrouble) {
            switch policy {
            case .ignore: break
            case .logoutAll: try await carryOutSurely(.logOutEverybody)
            case .purgeAll: try await carryOutSurely(.purgeEverybody)
            }
            daemonFailures = 0
            return true
        } catch {
            return failed(error.description)
        }
    }

    /// There is no daemon that may refuse this one.
    private func carryOutSurely(_ order: FleetCommand) async throws(OrderTrouble) {
        if let reason = try await orders.carryOut(order) { throw OrderTrouble(description: reason) }
    }

    private mutating func save(_ position: Position) -> Bool {
        do throws(SystemError) {
            try file.save(position)
            (saved, daemonFailures) = (position, 0)
            return true
        } catch {
            return failed("the position cannot be kept: \(error)")
        }
    }

    private mutating func failed(_ reason: String) -> Bool {
        daemonFailures += 1
        log.error("orders are not carried out, and are tried again", metadata: ["reason": "\(reason)"])
        return false
    }

    private func pause(after failures: Int) async {
        do {
            try await Task.sleep(for: Self.backoff.pause(after: max(1, failures), random: Double.random(in: 0...1)))
        } catch {
            // Cancelled: the loop sees it.
        }
    }
}
