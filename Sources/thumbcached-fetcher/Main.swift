import ArgumentParser
import CLinux
import Glibc
import HelperProtocol
import LinuxSupport
import ProgramSupport
import ThumbcacheProtocol

/// `thumbcached-fetcher`: downloads for the daemon, and holds neither keys nor store.
@main
struct FetcherCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "thumbcached-fetcher",
        abstract: "Downloads images and renews access tokens for thumbcached.",
        discussion: """
            Nobody starts it by hand: systemd does for thumbcached.service, and a daemon that a person started does \
            itself. It speaks with the daemon over the socket that it is handed, as its standard input or as systemd \
            passes one, and ends with it.
            """,
        version: Version.current)

    static func main() {
        guard clinux_fill_standard_descriptors() == 0 else { fail("open /dev/null: \(SystemError("open").reason)") }
        main(nil)
    }

    mutating func run() throws {
        signal(SIGPIPE, SIG_IGN)
        umask(0o077)
        clinux_overwrite_freed_memory()
        do {
            // Before anything else: a program of the same uid that attaches with ptrace(2) could put another in its place.
            // The process that starts it is undumpable, but exec(2) resets that.
            try becomeUndumpable()
            try FetcherProgram.serve(try FetcherProgram.connection())
        } catch {
            Self.fail("\(error)")
        }
    }

    private static func fail(_ reason: String) -> Never {
        failProgram(
            "thumbcached-fetcher", reason, journalStream: getenv("JOURNAL_STREAM").map { String(cString: $0) })
    }
}
