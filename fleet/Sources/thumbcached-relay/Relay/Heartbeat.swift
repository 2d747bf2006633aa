import Fleet
import Logging

/// Repeats a host's row in the table until the relay has finished what it does meanwhile.
struct Heartbeat: Sendable {
    private let task: Task<Void, Never>

    /// - Parameters:
    ///   - state: the position before the work.
    ///   - interval: milliseconds.
    init(_ stream: FleetStream, host: String, _ state: HostState, every interval: Int64, _ log: Logger) {
        task = Task {
            while true {
                do {
                    try await Task.sleep(for: .milliseconds(interval))
                } catch {
                    return
                }
                // Not part of this task: cancelling a call would close the connection, which the relay needs next.
                let beat = Task { try await stream.showBusy(host: host, state) }
                if case .failure(let error) = await beat.result {
                    // The relay meets the same failure at its next call.
                    log.debug("heartbeat failed", metadata: ["reason": "\(error)"])
                    return
                }
            }
        }
    }

    /// Returns when no row can be written any more.
    func end() async {
        task.cancel()
        await task.value
    }
}
