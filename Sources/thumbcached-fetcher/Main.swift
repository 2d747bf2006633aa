import ArgumentParser
import CLinux
import Glibc
import HelperProtocol
import LinuxSupport
import ProgramSupport
import ThumbcacheProtocol

/// `thumbcached-fetcher`: downloads for the daemon, in a process without keys and store.
@main
struct FetcherCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "thumbcached-fetcher",
        abstract: "Downloads images and renews access tokens for thumbcached.",
        discussion: """
            Not meant to be started by hand. systemd starts it for thumbcached.service; a daemon that was started by \
            hand starts it itself. It serves the first connection to the socket from systemd, or its standard input, \
            and exits when the daemon closes the connection.
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
        // libldap reads no ldap.conf(5) and no variables, which could change how it connects.
        setenv("LDAPNOINIT", "1", 1)
        do {
            // First, because a program of the same uid could attach with ptrace(2) and replace this one. The process
            // that starts it is undumpable, but exec(2) resets that.
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
