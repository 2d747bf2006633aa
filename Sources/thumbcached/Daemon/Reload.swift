import Glibc
import ImageFetcher
import LinuxSupport
import Logging

/// Reads the configuration again on SIGHUP: limits, origins and the log level take effect at once; a file that is not good
/// changes nothing.
struct Reload: Sendable {
    let setup: DaemonSetup
    let live: LiveConfiguration
    let accounts: LiveAccounts
    let fetcher: CurlImageFetcher
    let notifier: SystemdNotifier
    let log: Logger

    func run() {
        tell(.reloading(monotonic: UInt64(nanoseconds(of: CLOCK_MONOTONIC)) / 1_000))
        defer { tell(.ready) }
        do {
            let new = try setup.load()
            let old = live.current.configuration
            let merged = try DescriptorLimit.fit(
                new.reloaded(over: old), diskThreads: Daemon.allDiskThreads, log: log
            ).configuration
            live.replace(by: merged)
            fetcher.update(merged.fetcher)
            accounts.read()
            let ignored = new.changesNeedingRestart(from: old)
            if !ignored.isEmpty {
                log.warning(
                    "some changes take effect only after a restart",
                    metadata: ["keys": "\(ignored.joined(separator: ","))"])
            }
            log.notice("configuration read again")
        } catch {
            log.error("the configuration is not good; the old one stays", metadata: ["reason": "\(error)"])
        }
    }

    private func tell(_ message: SystemdNotifier.Message) {
        do throws(SystemError) {
            try notifier.send(message)
        } catch {
            log.warning("systemd could not be notified", metadata: ["reason": "\(error)"])
        }
    }
}
