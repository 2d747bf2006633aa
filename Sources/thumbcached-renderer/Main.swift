import ArgumentParser
import CLinux
import Glibc
import LinuxSupport
import ProgramSupport
import ThumbcacheProtocol

/// `thumbcached-renderer`: makes pictures of other sizes for the daemon, and holds nothing of anybody's.
@main
struct RendererCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "thumbcached-renderer",
        abstract: "Makes pictures of other sizes for thumbcached.",
        discussion: """
            Nobody starts it by hand: systemd does for thumbcached.service, and a daemon that a person started does \
            itself. Each connection has a worker of its own, which decodes what comes over it and can do nothing \
            else. Connections are those to the socket that systemd passes, or such as come over standard input, \
            themselves as descriptors.
            """,
        version: Version.current)

    @Option(help: ArgumentHelp("Seconds without a connection after which the program ends.", valueName: "seconds"))
    var idle = 10

    static func main() {
        guard clinux_fill_standard_descriptors() == 0 else { fail("open /dev/null: \(SystemError("open").reason)") }
        main(nil)
    }

    mutating func run() throws {
        signal(SIGPIPE, SIG_IGN)
        umask(0o077)
        do {
            var program = try RendererProgram(Connections.passed(), patience: max(0, idle))
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
