import Logging

extension Logger {
    /// Runs `body`. If it throws, logs `message` with the error. For work whose failure has no consequence.
    package func onFailure(
        _ message: Logger.Message, _ level: Logger.Level = .warning, _ metadata: Logger.Metadata = [:],
        _ body: () throws -> Void
    ) {
        do {
            try body()
        } catch {
            log(level: level, message, metadata: metadata.merging(["error": "\(error)"]) { $1 })
        }
    }
}
