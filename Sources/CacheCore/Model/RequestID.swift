import Logging

/// The command that a task runs for, as the log names it. The task has it, and so does whatever it awaits.
public struct RequestID: Sendable, CustomStringConvertible {
    /// As in `CLIENT LIST`.
    private let client: UInt64
    /// Of those on that connection that are no mere answer from memory, from 1.
    private let number: Int
    /// 0 where the kernel does not know.
    private let pid: Int32

    @TaskLocal public static var current: RequestID?

    public init(client: UInt64, number: Int, pid: Int32) {
        (self.client, self.number, self.pid) = (client, number, pid)
    }

    public var description: String { "\(client).\(number)" }

    /// Names the request, and the process that sent it, in every line that is written on its way.
    public static let metadata = Logger.MetadataProvider {
        guard let current else { return [:] }
        return current.pid == 0 ? ["request": "\(current)"] : ["request": "\(current)", "pid": "\(current.pid)"]
    }
}
