import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import Testing

@testable import CacheCore

@Suite struct AccountLogTests {
    @Test func `F80: log lines are limited by account, not by uid`() {
        let lines = NIOLockedValueBox<[String]>([])
        let log = AccountLog(Logger(label: "test") { _ in Lines(lines: lines) }) { $0 >= 100_000 ? 1000 : $0 }
        for uid in 100_000..<100_100 as Range<UInt32> { log.write("line", uid: uid, [:], at: 0) }
        log.write("line", uid: 1001, [:], at: 0)
        #expect(lines.withLockedValue { $0.count } == AccountLog.maximumLines + 1)
        log.write("line", uid: 100_000, [:], at: LineLimit<UInt32>.period)
        let last = lines.withLockedValue { $0.suffix(2) }
        #expect(last == ["log messages suppressed account=1000 count=80", "line uid=100000"])
    }
}

/// Records each log line as text.
private struct Lines: LogHandler {
    let lines: NIOLockedValueBox<[String]>
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.trace

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        let details = ["uid", "account", "count"].compactMap { key in event.metadata?[key].map { " \(key)=\($0)" } }
            .joined()
        lines.withLockedValue { $0.append("\(event.message)\(details)") }
    }
}
