import HelperClient
import Logging
import NIOConcurrencyHelpers

/// Reloads the configuration on SIGHUP: applies limits, origins and the log level.
struct Reload: Sendable {
    let load: @Sendable () throws -> Configuration
    let live: LiveConfiguration
    let accounts: LiveAccounts
    let fetcher: FetcherClient
    /// Overrides the configuration's.
    let logLevel: Logger.Level?
    let log: Logger

    func run() {
        do {
            let new = try load()
            let old = live.withLockedValue { $0 }
            let merged = try DescriptorBudget.raiseLimitAndFit(new.reloaded(over: old), log: log).configuration
            live.withLockedValue { $0 = merged }
            fetcher.update(merged.fetcher(logLevel: logLevel))
            accounts.read()
            let ignored = new.changesNeedingRestart(from: old)
            if !ignored.isEmpty {
                log.warning(
                    "configuration changes need a restart",
                    metadata: ["keys": "\(ignored.joined(separator: ","))"])
            }
            new.logWarnings(log)
            log.notice("configuration reloaded", metadata: ["file": "\(new.file ?? "none")"])
        } catch {
            log.error("invalid configuration; the previous one stays in force", metadata: ["reason": "\(error)"])
        }
    }
}
