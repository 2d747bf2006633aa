import ArgumentParser
import CLinux
import Glibc
import LinuxSupport
import Logging
import ProgramSupport
import ThumbcacheProtocol

/// The command line: `thumbcached [--config FILE] [--check-config] [--log-level L] [--version]`.
@main
struct Main: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "thumbcached",
        abstract: "The on-disk thumbnail cache that knows whom it belongs to.",
        discussion: """
            Serves profile pictures to local programs over a Unix socket, downloads what it lacks, and ends a user's \
            cache when the user logs out, so that nothing of it can be read again. Talk to it with thumbcachectl or \
            any Redis client. Stops on SIGTERM and SIGINT, reads its configuration again on SIGHUP.
            """,
        version: Version.current)

    @Option(
        name: .customLong("config"),
        help: ArgumentHelp(
            "The configuration file.",
            discussion: """
                Without it the first that exists of two is read: whoever is not root has their own, \
                $XDG_CONFIG_HOME/thumbcached/thumbcached.toml or ~/.config/thumbcached/thumbcached.toml, and everybody \
                \(ConfigurationLoader.defaultFile). Services that systemd made directories for read the latter alone.
                """,
            valueName: "file"))
    var configurationFile: String?

    @Flag(
        help: ArgumentHelp(
            "Read the configuration, say whether it is good, and exit.",
            discussion: """
                It is judged as the service would read it: root reads it as the user \
                \(ConfigurationCheck.serviceUser), where there is one. Your own file is judged as your own daemon would.
                """))
    var checkConfig = false

    @Option(
        help: ArgumentHelp(
            "\(alternatives(Logger.Level.allCases.map(\.rawValue))): over the file's log.level.", valueName: "level"))
    var logLevel: Logger.Level?

    @Option(name: .customLong("start-helper"), help: .hidden)
    var helpers: [String] = []

    /// First of all, lest a socket or a file of the store's come to be the log that nobody wants.
    ///
    /// Not async: the main thread of an async program is libdispatch's, which traps where descriptors or threads are
    /// short (F75).
    static func main() {
        guard clinux_fill_standard_descriptors() == 0 else {
            fail("open /dev/null: \(SystemError("open").reason)", environment())
        }
        main(nil)
    }

    mutating func run() throws {
        // A log that nobody reads any more ends nothing.
        signal(SIGPIPE, SIG_IGN)
        // What the daemon makes is nobody else's, whatever mode is asked for.
        umask(0o077)
        if !helpers.isEmpty {
            do {
                return try HelperStarter.serve(helpers)
            } catch {
                Self.fail("\(error)", Self.environment())
            }
        }
        // Images that were evicted or sent, requests, what libraries kept; small pieces are wiped where they matter.
        clinux_overwrite_freed_memory()
        let environment = Self.environment()
        do {
            if checkConfig {
                return print(try ConfigurationCheck(file: configurationFile, environment: environment).run())
            }
            let load: @Sendable () throws -> Configuration = { [configurationFile] in
                try ConfigurationLoader(environment: environment).load(file: configurationFile)
            }
            try Daemon.run(try load(), environment: environment, logLevel: logLevel, reload: load)
        } catch {
            Self.fail("\(error)", environment)
        }
    }

    /// What the daemon reads of its environment. Whatever else stands there may be a secret of others (I11, F79).
    private static func environment() -> [String: String] {
        [
            "CACHE_DIRECTORY", "STATE_DIRECTORY", "RUNTIME_DIRECTORY", "HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME",
            "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "JOURNAL_STREAM", "LISTEN_FDS", "LISTEN_PID", "NOTIFY_SOCKET",
            "WATCHDOG_PID",
            "WATCHDOG_USEC", KernelFacts.bootIDVariable, Daemon.fetcherVariable, Daemon.rendererVariable,
        ].reduce(into: [:]) { values, name in
            if let value = getenv(name) { values[name] = String(cString: value) }
        }
    }

    private static func fail(_ reason: String, _ environment: [String: String]) -> Never {
        failProgram("thumbcached", reason, journalStream: environment["JOURNAL_STREAM"])
    }
}

extension Logger.Level: @retroactive ExpressibleByArgument {}
