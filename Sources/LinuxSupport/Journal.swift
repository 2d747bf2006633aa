import Glibc

/// The format of messages on standard error for systemd's journal.
public enum Journal {
    /// Priorities of syslog(3).
    public enum Priority: Int, Sendable {
        case error = 3
        case warning = 4
    }

    /// Whether a descriptor is connected to the journal. JOURNAL_STREAM contains its device and inode; the variable is
    /// inherited even if standard error has been redirected (systemd.exec(5)).
    public static func isConnected(_ descriptor: CInt, to variable: String?) -> Bool {
        var status = stat()
        guard let variable, fstat(descriptor, &status) == 0 else { return false }
        return variable == "\(status.st_dev):\(status.st_ino)"
    }

    /// Formats a message of one or more lines. For the journal, each line starts with its priority (sd-daemon(3)).
    public static func lines(_ message: String, _ priority: Priority, toJournal: Bool) -> String {
        let prefix = toJournal ? "<\(priority.rawValue)>" : ""
        return message.split(separator: "\n", omittingEmptySubsequences: false).map { prefix + $0 + "\n" }.joined()
    }
}
