import Glibc
import LinuxSupport

/// Writes an error to standard error and exits with 1.
///
/// Calls _exit(2): exit(3) runs the cleanup of libraries such as OpenSSL, which crashes threads that still use them.
/// - Parameter journalStream: JOURNAL_STREAM of the environment.
public func failProgram(_ program: String, _ reason: String, journalStream: String?) -> Never {
    let isJournal = Journal.isConnected(STDERR_FILENO, to: journalStream)
    StandardError().write(Journal.lines("\(program): \(reason)", .error, toJournal: isJournal))
    fflush(nil)
    _exit(1)
}
