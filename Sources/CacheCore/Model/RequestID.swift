import Logging

/// The id of the command that a task executes, for the log. Child tasks inherit it.
public struct RequestID: Sendable, CustomStringConvertible {
    /// As in `CLIENT LIST`.
    private let client: UInt64
    /// Number of the command on its connection, from 1; hits are not numbered.
    private let number: Int
    /// 0 if unknown.
    private let pid: Int32

    @TaskLocal public static var current: RequestID?

    public init(client: UInt64, number: Int, pid: Int32) {
        (self.client, self.number, self.pid) = (client, number, pid)
    }

    public var description: String { "\(client).\(number)" }

    /// Adds the request and the client's process to every log line of the task.
    public static let metadata = Logger.MetadataProvider {
        guard let current else { return [:] }
        return current.pid == 0 ? ["request": "\(current)"] : ["request": "\(current)", "pid": "\(current.pid)"]
    }
}
