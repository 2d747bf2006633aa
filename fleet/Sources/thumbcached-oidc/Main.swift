import ArgumentParser
import CLinux
import Glibc
import LinuxSupport
import Logging
import ProgramSupport
import ThumbcacheProtocol

/// The command line: `thumbcached-oidc [--config FILE] [--check-config] [--version]`.
@main
struct OIDCCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "thumbcached-oidc",
        abstract: "Takes log-outs from an OpenID Connect provider, and publishes them to a fleet.",
        discussion: """
            Listens for POST /backchannel-logout, as OpenID Connect Back-Channel Logout 1.0 has it, checks the logout \
            token with the provider's keys, and publishes the log-out as thumbcachectl fleet logout does: to a stream \
            of Redis or Valkey that thumbcached-relay follows on each host. fleet/docs/fleet.md has the whole.

            It knows no daemon. Who breaks into it can log users out, and read nothing.
            """,
        version: Version.current)

    @Option(
        name: .customLong("config"),
        help: ArgumentHelp(
            "The configuration. Without it \(OIDCConfiguration.defaultFile) is read, if it exists.",
            valueName: "file"))
    var path: String?

    @Flag(help: "Say what is wrong with the configuration, and end.")
    var checkConfig = false

    static func main() async {
        guard clinux_fill_standard_descriptors() == 0 else { fail("open /dev/null: \(SystemError("open").reason)") }
        setenv("LIBDISPATCH_LOG", "NO", 0)
        signal(SIGPIPE, SIG_IGN)
        umask(0o077)
        await main(nil)
    }

    func run() async throws {
        do {
            let configuration = try OIDCConfiguration.load(file: path)
            if checkConfig { return }
            let level = configuration.logLevel
            let isJournal = Journal.isBehind(STDERR_FILENO, Self.journalStream)
            let log = Logger(label: "thumbcached-oidc") {
                StructuredLog(label: $0, threshold: { level }, isJournal: isJournal)
            }
            try await Serve(configuration: configuration, log: log).run()
        } catch {
            Self.fail("\(error)")
        }
    }

    private static var journalStream: String? { getenv("JOURNAL_STREAM").map { String(cString: $0) } }

    private static func fail(_ reason: String) -> Never {
        failProgram("thumbcached-oidc", reason, journalStream: journalStream)
    }
}
