import ArgumentParser
import CLinux
import Glibc
import LinuxSupport
import ProgramSupport
import ThumbcacheProtocol

/// `thumbcached-renderer`: renders images in other sizes for the daemon, in processes that can do nothing else.
@main
struct RendererCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "thumbcached-renderer",
        abstract: "Renders images in other sizes for thumbcached.",
        discussion: """
            Not meant to be started by hand. systemd starts it for thumbcached.service; a daemon that was started by \
            hand starts it itself. It accepts connections to the socket from systemd, or receives them as descriptors \
            over standard input. A worker process for each connection decodes images and can do nothing else.
            """,
        version: Version.current)

    @Option(help: ArgumentHelp("Seconds without a connection after which the program exits.", valueName: "seconds"))
    var idle = 10

    static func main() {
        guard clinux_fill_standard_descriptors() == 0 else { fail("open /dev/null: \(SystemError("open").reason)") }
        main(nil)
    }

    mutating func run() throws {
        signal(SIGPIPE, SIG_IGN)
        umask(0o077)
        do {
            var program = try RendererProgram(Connections.passed(), idleTimeout: max(0, idle))
            try program.serve()
        } catch {
            Self.fail("\(error)")
        }
    }

    private static func fail(_ reason: String) -> Never {
        failProgram(
            "thumbcached-renderer", reason, journalStream: getenv("JOURNAL_STREAM").map { String(cString: $0) })
    }
}
