import Fleet
import Logging

/// Refreshes a host's row in the table while the relay is busy.
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
                // A separate task: cancelling a command closes the connection, which the relay still needs.
                let beat = Task { try await stream.reportBusy(host: host, state) }
                if case .failure(let error) = await beat.result {
                    // The relay's next command reports the same failure.
                    log.debug("heartbeat failed", metadata: ["reason": "\(error)"])
                    return
                }
            }
        }
    }

    /// Stops the heartbeat. Returns after the last write.
    func end() async {
        task.cancel()
        await task.value
    }
}
