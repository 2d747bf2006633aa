import ArgumentParser
import CLinux
import Glibc
import HelperClient
import LinuxSupport
import Logging
import ProgramSupport
import ThumbcacheProtocol

/// The command line: `thumbcached [--config FILE] [--check-config] [--log-level L] [--version]`.
///
/// Other files do not use this type, because fuzzers build the program without this file.
@main
struct Main: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "thumbcached",
        abstract: "An on-disk cache of profile images for each user.",
        discussion: """
            Serves profile images to local programs over a Unix socket, downloads missing images, and destroys a \
            user's cache at logout. Clients are thumbcachectl and any Redis client. SIGTERM and SIGINT stop the \
            daemon, SIGHUP reloads its configuration.
            """,
        version: Version.current)

    @Option(
        name: .customLong("config"),
        help: ArgumentHelp(
            "The configuration file.",
            discussion: """
                Default: the first of two files that exists, \
                $XDG_CONFIG_HOME/thumbcached/thumbcached.toml (in ~/.config if the variable is not set) and \
                \(ConfigurationLoader.defaultFile). Root and services of systemd read only the latter.
                """,
            valueName: "file"))
    var configurationFile: String?

    @Flag(
        help: ArgumentHelp(
            "Validate the configuration and exit.",
            discussion: """
                As root, reads the file as user \(ConfigurationCheck.serviceUser), if that user exists. A personal \
                file is checked with the caller's environment.
                """))
    var checkConfig = false

    @Option(
        help: ArgumentHelp(
            "Override log.level: one of \(alternatives(Logger.Level.allCases.map(\.rawValue))).",
            valueName: "level"))
    var logLevel: Logger.Level?

    /// Opens closed standard streams first, so that no socket or file of the store becomes standard error. Not async:
    /// libdispatch, which runs the main thread of an async program, traps without descriptors or threads (F75).
    static func main() {
        guard clinux_fill_standard_descriptors() == 0 else {
            fail("open /dev/null: \(SystemError("open").reason)", environment())
        }
        // Otherwise writing to a closed log would end the process.
        signal(SIGPIPE, SIG_IGN)
        // Files are accessible to the daemon's user only, whatever mode the code requests.
        umask(0o077)
        let arguments = CommandLine.arguments.dropFirst()
        // Not an option, because parsing options would add 1 MB to the memory of the fork server.
        if arguments.first == Daemon.forkServerArgument { return runForkServer(Array(arguments.dropFirst())) }
        // Parses the arguments and calls run().
        main(nil)
    }

    private static func runForkServer(_ programs: [String]) {
        do {
            try ForkServer.serve(programs)
        } catch {
            fail("\(error)", environment())
        }
    }

    mutating func run() throws {
        // Makes free(3) overwrite memory, so that freed blocks hold no images or tokens (I11).
        clinux_overwrite_freed_memory()
        clinux_limit_arenas()
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

    /// The variables that the daemon uses. Others may contain secrets (I11, F79).
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
