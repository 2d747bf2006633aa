import Glibc

/// What systemd's journal wants of those whose standard error it reads.
public enum Journal {
    /// Priorities of syslog(3).
    public enum Priority: Int, Sendable {
        case error = 3
        case warning = 4
    }

    /// Whether a descriptor is the one that JOURNAL_STREAM names by device and inode: the variable is inherited, but
    /// standard error may have been led elsewhere since (systemd.exec(5)).
    public static func isBehind(_ descriptor: CInt, _ variable: String?) -> Bool {
        var status = stat()
        guard let variable, fstat(descriptor, &status) == 0 else { return false }
        return variable == "\(status.st_dev):\(status.st_ino)"
    }

    /// A message of one line or more: to the journal, each of them with its priority (sd-daemon(3)).
    public static func lines(_ message: String, _ priority: Priority, toJournal: Bool) -> String {
        let prefix = toJournal ? "<\(priority.rawValue)>" : ""
        return message.split(separator: "\n", omittingEmptySubsequences: false).map { prefix + $0 + "\n" }.joined()
    }
}
