import ArgumentParser
import CLinux
import Glibc
import LinuxSupport
import Logging
import ProgramSupport
import Thumbcache
import ThumbcacheProtocol

/// The command line: `thumbcached-exporter [--socket PATH] [--listen ADDRESS:PORT] [--host NAME …] [--version]`.
@main
struct ExporterCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "thumbcached-exporter",
        abstract: "Serve the figures of thumbcached over HTTP: for Prometheus, and as a page for people.",
        discussion: """
            /metrics is what the daemon answers to METRICS, and thumbcached_up: 1, or 0 where the daemon does not \
            answer. / is a page that shows the same, with the last ten minutes. Nothing can be changed by either, and \
            no user and no profile is named.

            The daemon is looked for at --socket, or else where thumbcachectl looks for it: at THUMBCACHED_SOCKET, or \
            else, unless the exporter runs as root, at $XDG_RUNTIME_DIR/\(ThumbcacheSocket.inSession), or else at \
            \(ThumbcacheSocket.ofMachine).

            The exporter asks the daemon as the user who runs it. That user is the daemon's own, an admin, or named in \
            access.observers of the daemon's configuration. Every program that can connect to the exporter can read \
            the figures: by default, all programs on this machine.

            Example:
              thumbcached-exporter --listen 127.0.0.1:9420
            """,
        version: Version.current)

    @Option(help: ArgumentHelp("The daemon's Unix socket.", valueName: "path"), completion: .file())
    var socket: String?

    @Option(
        help: ArgumentHelp(
            "Where to listen: a literal address and a port, as in [::1]:9420.",
            discussion: "An address that is no loopback address lets other machines in.", valueName: "address:port"))
    var listen = ListenAddress.usual

    @Option(
        help: ArgumentHelp(
            "A further name or address by which it may be called, as by a proxy in front of it.",
            discussion: """
                Requests for any other host are refused, but for localhost, loopback addresses and the one of \
                --listen. May be given several times.
                """, valueName: "name"))
    var host: [HostName] = []

    static func main() {
        // Lest a connection come to be the log.
        guard clinux_fill_standard_descriptors() == 0 else { fail("open /dev/null: \(SystemError("open").reason)") }
        main(nil)
    }

    func validate() throws {
        if socket == "" { throw ValidationError("--socket is empty; name the daemon's socket") }
    }

    mutating func run() throws {
        signal(SIGPIPE, SIG_IGN)
        umask(0o077)
        let isJournal = Journal.isBehind(STDERR_FILENO, Self.journalStream)
        let log = Logger(label: "thumbcached-exporter") { label in
            StructuredLog(label: label, threshold: { .info }, isJournal: isJournal)
        }
        let socket = socket ?? ThumbcacheSocket.path { name in getenv(name).map { String(cString: $0) } }
        do {
            try Exporter(socket: socket, address: listen, hosts: host, log: log).run()
        } catch {
            Self.fail("\(error)")
        }
    }

    private static var journalStream: String? { getenv("JOURNAL_STREAM").map { String(cString: $0) } }

    private static func fail(_ reason: String) -> Never {
        failProgram("thumbcached-exporter", reason, journalStream: journalStream)
    }
}
