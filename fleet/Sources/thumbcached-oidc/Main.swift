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
        abstract: "Receive logouts from an OpenID Connect provider and publish them to a fleet.",
        discussion: """
            Serves POST /backchannel-logout (OpenID Connect Back-Channel Logout 1.0), verifies the logout token with the \
            provider's keys, and publishes the logout to a Redis or Valkey stream that thumbcached-relay follows on \
            each host. See fleet/docs/oidc.md.

            The program has no access to any daemon: an attacker who controls it can log users out, but read nothing.
            """,
        version: Version.current)

    @Option(
        name: .customLong("config"),
        help: ArgumentHelp(
            "The configuration file; by default \(OIDCConfiguration.defaultFile), if it exists.",
            valueName: "file"))
    var path: String?

    @Flag(help: "Check the configuration and exit.")
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
            let isJournal = Journal.isConnected(STDERR_FILENO, to: Self.journalStream)
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
