import Glibc
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import Testing

@testable import HelperClient

/// Restarts of helper processes, and their log messages.
@Suite struct RestartTests {
    @Test func `the first failure is retried at once, further ones with exponential backoff up to 30 s`() {
        var backoff = RestartBackoff()
        let delays = (1...12).map { _ in
            backoff.failed(at: 0)
            return backoff.delay(at: 0)
        }
        #expect(delays == [0, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000])
        #expect(backoff.delay(at: 29_999) == 1)
        #expect(backoff.delay(at: 30_000) == 0)
    }

    @Test func `a helper that ran for ten seconds resets the backoff`() {
        for (lifetime, delay) in [(9_999, Int64(400)), (10_000, 0)] as [(Int64, Int64)] {
            var backoff = RestartBackoff()
            for _ in 0..<3 { backoff.failed(at: 0) }
            backoff.started(at: 1_000)
            // Another worker of the same helper.
            backoff.started(at: 5_000)
            backoff.failed(at: 1_000 + lifetime)
            #expect(backoff.delay(at: 1_000 + lifetime) == delay)
        }
    }

    @Test func `a failure is logged once for each reason, and again after the helper worked`() {
        let log = RecordedLog()
        let supervisor = HelperSupervisor(
            "fetcher", connector: RefusingConnector(code: ECONNREFUSED), failureLevel: .error,
            log: Logger(label: "test") { _ in log }
        ) { 0 }
        for reason in ["a", "a", "b"] { supervisor.failed(reason) }
        supervisor.started()
        supervisor.started()
        supervisor.failed("b")
        #expect(
            log.lines == [
                "error helper process failed a", "error helper process failed b",
                "notice helper process started again ", "error helper process failed b",
            ])
    }

    @Test func `F82: without a fork server no helper is started again`() {
        for (code, delay) in [(ECONNREFUSED, Int64(0)), (EPIPE, nil)] as [(CInt, Int64?)] {
            let supervisor = HelperSupervisor(
                "fetcher", connector: RefusingConnector(code: code), failureLevel: .error,
                log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
            ) { 0 }
            #expect(throws: SystemError.self) { try supervisor.open() }
            #expect(supervisor.retryDelay == delay)
        }
    }
}

private struct RefusingConnector: HelperConnector {
    let code: CInt

    func open() throws(SystemError) -> CInt { throw SystemError("connect", code: code) }
}

/// Keeps the level, the message and the reason of each line.
private struct RecordedLog: LogHandler {
    private let recorded = NIOLockedValueBox<[String]>([])
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.trace

    var lines: [String] { recorded.withLockedValue { $0 } }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        let reason = event.metadata?["reason"].map { "\($0)" } ?? ""
        recorded.withLockedValue { $0.append("\(event.level) \(event.message) \(reason)") }
    }
}
