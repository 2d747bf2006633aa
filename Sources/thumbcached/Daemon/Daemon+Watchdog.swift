import ImageFetcher
import LinuxSupport
import Logging
import NIOCore
import ThumbnailCache

extension Daemon {
    /// What has to live, and systemd's watchdog on it; nil where systemd waits for no sign of life.
    static func watchdog(
        _ notifier: SystemdNotifier, loops: any EventLoopGroup, fetcher: CurlImageFetcher, disk: FairPool,
        lifecycle: FairPool, endings: FairPool, tasks: any TaskExecutor, time: SystemTime, log: Logger
    ) -> Watchdog? {
        guard let interval = notifier.watchdogInterval else { return nil }
        var checks = loops.makeIterator().enumerated().map { index, loop in
            Watchdog.HealthCheck(name: "event loop \(index)", isVital: true) { loop.execute($0) }
        }
        checks += [
            Watchdog.HealthCheck(name: "log-ins and log-outs", isVital: true) { alive in
                Task(executorPreference: tasks) { alive() }
            },
            Watchdog.HealthCheck(name: "downloads", isVital: true) { fetcher.whenAlive($0) },
            Watchdog.HealthCheck(name: "disk of images", isVital: false) { disk.submit(for: 0, $0) },
            Watchdog.HealthCheck(name: "disk of log-ins", isVital: false) { lifecycle.submit(for: 0, $0) },
            Watchdog.HealthCheck(name: "disk of log-outs", isVital: false) { endings.submit(for: 0, $0) },
        ]
        // The second beat is the first that feeds, at half of the time that systemd waits.
        return Watchdog(
            checks: checks, pause: interval.milliseconds / 2, time: time,
            feed: {
                do throws(SystemError) {
                    try notifier.sendAtOnce(.watchdog)
                } catch {
                    // The next one comes in time, if systemd takes it.
                    log.debug("systemd's watchdog could not be fed", metadata: ["reason": "\(error)"])
                }
            }, log: log)
    }
}
