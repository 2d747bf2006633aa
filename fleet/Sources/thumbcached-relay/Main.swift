import ArgumentParser
import CLinux
import Fleet
import Glibc
import LinuxSupport
import ProgramSupport
import ThumbcacheProtocol

/// `thumbcached-relay`: forwards logouts published to a stream to this machine's daemon.
@main
enum Main {
    static func main() async {
        guard clinux_fill_standard_descriptors() == 0 else { fail("open /dev/null: \(SystemError("open").reason)") }
        setenv("LIBDISPATCH_LOG", "NO", 0)
        signal(SIGPIPE, SIG_IGN)
        umask(0o077)
        let root: any ParsableCommand.Type = isCalledByTool ? FleetRoot.self : RelayCommand.self
        do {
            var command = try root.parseAsRoot()
            if let command = command as? any FleetSubcommand {
                let status = try await command.run(in: environment)
                fflush(nil)
                // Background tasks need no shutdown: a saved position is already durable.
                _exit(status)
            }
            try command.run()
        } catch let error as CommandFailure {
            fail(root, error.description, status: error.status)
        } catch {
            // --help and --version arrive here, too, and are no errors.
            if root.exitCode(for: error) == .success {
                print(root.fullMessage(for: error))
            } else {
                fail(root, root.message(for: error) + "; see --help", status: CommandFailure.usage)
            }
        }
    }

    /// thumbcachectl passes this as the program's name: help and errors then name that command.
    private static var isCalledByTool: Bool { CommandLine.arguments.first == FleetRoot.name }

    /// The environment variables that are used.
    private static var environment: [String: String] {
        ["STATE_DIRECTORY", "JOURNAL_STREAM"].reduce(into: [:]) { values, name in
            if let value = getenv(name) { values[name] = String(cString: value) }
        }
    }

    private static func fail(_ root: any ParsableCommand.Type, _ message: String, status: CInt) -> Never {
        StandardError().write("\(root.configuration.commandName ?? RelayCommand.name): \(message)\n")
        fflush(nil)
        _exit(status)
    }

    private static func fail(_ reason: String) -> Never {
        failProgram(RelayCommand.name, reason, journalStream: getenv("JOURNAL_STREAM").map { String(cString: $0) })
    }
}

/// A failed command and its exit status.
struct CommandFailure: Error, CustomStringConvertible {
    let status: CInt
    let description: String

    static let refused: CInt = 1
    static let usage: CInt = 2
    static let unreachable: CInt = 3

    init(_ status: CInt, _ description: String) { (self.status, self.description) = (status, description) }

    init(_ error: RedisError) { self.init(Self.unreachable, error.description) }
}

private let exitStatuses = """
    Exit status: 0 done by every host; 1 published but not done by every host, or failed; 2 invalid usage; 3 Redis \
    unreachable.
    """

struct RelayCommand: ParsableCommand {
    static let name = "thumbcached-relay"

    static let configuration = CommandConfiguration(
        commandName: name,
        abstract: "Forward logouts to many machines over a Redis or Valkey stream.",
        discussion: """
            On each host, run follows the stream and forwards its entries to the host's thumbcached. The other commands \
            publish entries and show which hosts have done them; thumbcachectl fleet calls them. See fleet/docs/fleet.md.

            \(exitStatuses)
            """,
        version: Version.current,
        subcommands: [Run.self] + FleetRoot.configuration.subcommands)
}

/// The commands that `thumbcachectl fleet` provides.
struct FleetRoot: ParsableCommand {
    static let name = "thumbcachectl fleet"

    static let configuration = CommandConfiguration(
        commandName: name,
        abstract: "Log out or purge on every host of a fleet, and show which hosts have done it.",
        discussion: """
            Reads the relay's configuration of this machine. See fleet/docs/fleet.md.

            \(exitStatuses)
            """,
        version: Version.current,
        subcommands: [Logout.self, Purge.self, Status.self, Forget.self])
}

/// A subcommand. Returns its exit status.
protocol FleetSubcommand: ParsableCommand {
    func run(in environment: [String: String]) async throws -> CInt
}
