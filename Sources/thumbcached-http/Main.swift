import ArgumentParser
import CLinux
import Glibc
import LinuxSupport
import Logging
import ProgramSupport
import Thumbcache
import ThumbcacheProtocol

/// The command line: `thumbcached-http [--config FILE] [--check-config] [--socket PATH] [--version]`.
@main
struct HTTPCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "thumbcached-http",
        abstract: "Serve images and metrics of thumbcached over HTTP.",
        discussion: """
            Two listeners, both off until the configuration has an address for them. "images" serves the images of \
            the daemon in the form of Gravatar and Libravatar: /avatar/HASH for one user, and /u/USER/avatar/HASH for \
            several. "figures" serves metrics for Prometheus at /metrics, and a status page at /. See docs/http.md.

            The program is an ordinary client of the daemon: it reaches the images of users that its own account has \
            logged in, and of no other account. It keeps no image, so that a logout applies to the next response. For \
            metrics, its account must be the daemon's own, an admin, or an observer (access.observers in the daemon's \
            configuration).

            The daemon's socket is that of --socket, else of the key socket, else of the environment variable \
            THUMBCACHED_SOCKET, else, unless root runs the program, $XDG_RUNTIME_DIR/\(ThumbcacheSocket.inSession), \
            else \(ThumbcacheSocket.ofMachine): as with thumbcachectl.
            """,
        version: Version.current)

    @Option(
        name: .customLong("config"),
        help: ArgumentHelp(
            "The configuration file; by default \(HTTPConfiguration.defaultFile), if it exists.", valueName: "file"),
        completion: .file())
    var path: String?

    @Flag(help: "Check the configuration and exit.")
    var checkConfig = false

    @Option(help: ArgumentHelp("The daemon's Unix socket.", valueName: "path"), completion: .file())
    var socket: String?

    static func main() {
        // Otherwise a connection could become descriptor 2, and receive the log.
        guard clinux_fill_standard_descriptors() == 0 else { fail("open /dev/null: \(SystemError("open").reason)") }
        main(nil)
    }

    func validate() throws {
        if socket == "" { throw ValidationError("--socket is empty; name the daemon's socket") }
    }

    mutating func run() throws {
        signal(SIGPIPE, SIG_IGN)
        umask(0o077)
        do {
            let configuration = try HTTPConfiguration.load(file: path)
            if checkConfig {
                for warning in configuration.warnings {
                    print("warning: \(warning.key.map { "\($0): " } ?? "")\(warning.sentence)")
                }
                return
            }
            let level = configuration.logLevel
            let isJournal = Journal.isConnected(STDERR_FILENO, to: Self.journalStream)
            let log = Logger(label: "thumbcached-http") { label in
                StructuredLog(label: label, threshold: { level }, isJournal: isJournal)
            }
            for warning in configuration.warnings {
                log.warning("\(warning.sentence)", metadata: ["key": "\(warning.key ?? "")"])
            }
            let file = path ?? HTTPConfiguration.defaultFile
            let listeners = try Listeners(configuration, passed: try SocketActivation().listeners(most: 2), file: file)
            let keys =
                configuration.images.perUser == .signed && listeners.images != nil
                ? try SigningKeys.load(
                    path: configuration.images.signingKey, credentials: Self.variable("CREDENTIALS_DIRECTORY")) : nil
            try Service(
                configuration: configuration, listeners: listeners, keys: keys, socket: daemon(configuration), log: log
            ).run()
        } catch {
            Self.fail("\(error)")
        }
    }

    private func daemon(_ configuration: HTTPConfiguration) -> String {
        if let socket { return socket }
        return configuration.socket.isEmpty ? ThumbcacheSocket.path(variable: Self.variable) : configuration.socket
    }

    private static func variable(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }

    private static var journalStream: String? { variable("JOURNAL_STREAM") }

    private static func fail(_ reason: String) -> Never {
        failProgram("thumbcached-http", reason, journalStream: journalStream)
    }
}
