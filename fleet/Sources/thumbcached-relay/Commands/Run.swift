import ArgumentParser
import Fleet
import Glibc
import LinuxSupport
import Logging
import NIOPosix
import ProgramSupport
@_spi(Wire) import Thumbcache

/// Runs the relay.
struct Run: FleetSubcommand {
    static let configuration = CommandConfiguration(
        abstract: "Follow the stream and forward its entries to the daemon of this host.",
        discussion: """
            Runs until terminated by a signal. An unfinished entry is repeated at the next start. The program's user \
            must be an admin of the daemon (access.admins).
            """)

    @OptionGroup var file: ConfigurationOption

    func run(in environment: [String: String]) async throws -> CInt {
        let configuration = try file.load(environment)
        guard !configuration.state.isEmpty else {
            throw CommandFailure(
                CommandFailure.usage,
                "no directory for the position; set state in the configuration, or STATE_DIRECTORY")
        }
        let level = configuration.logLevel
        let isJournal = Journal.isConnected(STDERR_FILENO, to: environment["JOURNAL_STREAM"])
        let log = Logger(label: "thumbcached-relay") {
            StructuredLog(label: $0, threshold: { level }, isJournal: isJournal)
        }
        var settings = ThumbcacheConfiguration()
        settings.libraryName = "thumbcached-relay"
        // Logging out all users can take minutes.
        settings.requestTimeout = .seconds(600)
        let client = ThumbcacheClient(path: configuration.socket, configuration: settings, logger: log)
        let running = Task { await client.run() }
        let loops = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        var relay: Relay
        do {
            relay = try Relay(
                configuration,
                connector: try RedisConnector(
                    configuration.redis, name: "thumbcached-relay", loop: loops.next()),
                sink: DaemonSink(client: client), file: try PositionFile(directory: configuration.state), log: log,
                now: { nanoseconds(of: CLOCK_BOOTTIME) / 1_000_000 })
        } catch {
            throw CommandFailure(CommandFailure.refused, "\(error)")
        }
        await relay.run()
        running.cancel()
        await running.value
        return 0
    }
}

/// The `--config` option.
struct ConfigurationOption: ParsableArguments {
    @Option(
        name: .customLong("config"),
        help: ArgumentHelp(
            "The relay's configuration file; by default \(RelayConfiguration.defaultFile), if it exists.",
            valueName: "file"))
    var path: String?

    func load(_ environment: [String: String]) throws(CommandFailure) -> RelayConfiguration {
        var name = [CChar](repeating: 0, count: 256)
        // On failure the name is empty, and the configuration must set `host`.
        let hostName = gethostname(&name, name.count - 1) == 0 ? name : [0]
        let text = String(decoding: hostName.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
        do throws(ConfigurationError) {
            return try RelayConfiguration.load(file: path, environment: environment, hostName: text)
        } catch {
            throw CommandFailure(CommandFailure.usage, error.description)
        }
    }

    /// Connects to the stream and closes the connection after `body`.
    func withStream<Success>(
        _ environment: [String: String], _ body: (FleetStream, RelayConfiguration) async throws -> Success
    ) async throws -> Success {
        let configuration = try load(environment)
        let loops = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let connector: RedisConnector
        do {
            connector = try RedisConnector(configuration.redis, name: "thumbcached-relay", loop: loops.next())
        } catch {
            throw CommandFailure(CommandFailure.usage, "cannot load the certificates: \(error)")
        }
        do {
            let connection = try await connector.connect()
            defer { connection.close() }
            return try await body(FleetStream(connection: connection, name: configuration.stream), configuration)
        } catch let error as RedisError {
            throw CommandFailure(error)
        }
    }
}
