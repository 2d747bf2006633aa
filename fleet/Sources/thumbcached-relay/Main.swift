import ArgumentParser
import CLinux
import Fleet
import Glibc
import LinuxSupport
import ProgramSupport
import ThumbcacheProtocol

/// `thumbcached-relay`: brings log-outs that were published for many machines to the daemon of this one.
@main
enum Main {
    static func main() async {
        guard clinux_fill_standard_descriptors() == 0 else { fail("open /dev/null: \(SystemError("open").reason)") }
        setenv("LIBDISPATCH_LOG", "NO", 0)
        signal(SIGPIPE, SIG_IGN)
        umask(0o077)
        do {
            var command = try RelayCommand.parseAsRoot()
            if let command = command as? any FleetCommand {
                let status = try await command.run(in: environment)
                fflush(nil)
                // What runs yet has nothing to lose: the position is durable, or not there.
                _exit(status)
            }
            try command.run()
        } catch let error as CommandFailure {
            complain(error.description, status: error.status)
        } catch {
            // --help and --version arrive here, too, and are no errors.
            let isError = RelayCommand.exitCode(for: error) != .success
            let message = RelayCommand.fullMessage(for: error)
            if isError { complain(message, status: CommandFailure.usage) }
            print(message)
        }
    }

    /// What of the environment is read.
    private static var environment: [String: String] {
        ["STATE_DIRECTORY", "JOURNAL_STREAM"].reduce(into: [:]) { values, name in
            if let value = getenv(name) { values[name] = String(cString: value) }
        }
    }

    private static func complain(_ message: String, status: CInt) -> Never {
        StandardError().write("thumbcached-relay: \(message)\n")
        fflush(nil)
        _exit(status)
    }

    private static func fail(_ reason: String) -> Never {
        failProgram("thumbcached-relay", reason, journalStream: getenv("JOURNAL_STREAM").map { String(cString: $0) })
    }
}

/// Why a command ends without having done what it is for.
struct CommandFailure: Error, CustomStringConvertible {
    let status: CInt
    let description: String

    static let refused: CInt = 1
    static let usage: CInt = 2
    static let unreachable: CInt = 3

    init(_ status: CInt, _ description: String) { (self.status, self.description) = (status, description) }

    init(_ error: RedisError) { self.init(Self.unreachable, error.description) }
}

struct RelayCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "thumbcached-relay",
        abstract: "Carries log-outs to many machines, over a stream of Redis or Valkey.",
        discussion: """
            On each host `run` follows the stream and has the host's thumbcached do what it says. The other commands \
            publish, and tell which hosts have done it; thumbcachectl fleet calls them. fleet/docs/fleet.md has the whole.

            Exit status: 0 done, by all hosts that are live; 1 not, or not yet; 2 wrong usage; 3 Redis cannot be \
            reached.
            """,
        version: Version.current,
        subcommands: [Run.self, Logout.self, Purge.self, Status.self, Forget.self])
}

/// A subcommand. Returns its exit status.
protocol FleetCommand: ParsableCommand {
    func run(in environment: [String: String]) async throws -> CInt
}
