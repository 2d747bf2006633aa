import Glibc
import LinuxSupport

/// Says on standard error why a program cannot go on, and exits with 1: at once, since a start that fails may have
/// threads that run. exit(3) would take away under them what libraries give back in the end, as OpenSSL does, and a
/// segmentation fault is no reason.
/// - Parameter journalStream: what systemd has set as JOURNAL_STREAM.
public func failProgram(_ program: String, _ reason: String, journalStream: String?) -> Never {
    let isJournal = Journal.isBehind(STDERR_FILENO, journalStream)
    StandardError().write(Journal.lines("\(program): \(reason)", .error, toJournal: isJournal))
    fflush(nil)
    _exit(1)
}
