import Foundation
import LinuxSupport
import Logging
import Synchronization
import Testing

@testable import ProgramSupport
@testable import thumbcached

@Suite struct StructuredLogTests {
    /// A log that writes to a temporary file.
    private struct Bench {
        let output: StandardError
        let level: LevelBox
        let isJournal: Bool

        func logger(_ clock: @escaping @Sendable () -> Int64 = { 1_795_259_045_006_999_999 }) -> Logger {
            Logger(label: "x") { label in
                var log = StructuredLog(label: label, threshold: { level.value }, isJournal: isJournal)
                log.output = output
                log.clock = clock
                return log
            }
        }
    }

    private final class LevelBox: @unchecked Sendable {
        // Changed by the test's thread only, between records.
        var value: Logger.Level
        init(_ value: Logger.Level) { self.value = value }
    }

    private func written(
        level: Logger.Level = .info, journal: Bool = false, _ body: (Bench) -> Void
    ) throws -> String {
        try Fixture.withDirectory { directory in
            let path = "\(directory)/log"
            let descriptor = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
            defer { close(descriptor) }
            body(Bench(output: StandardError(descriptor: descriptor), level: LevelBox(level), isJournal: journal))
            return try String(contentsOfFile: path, encoding: .utf8)
        }
    }

    @Test func `a record is one line of keys and values, with the time`() throws {
        let text = try written { log in
            log.logger().info("listening", metadata: ["path": "/run/s", "connections": "3"])
        }
        #expect(text == "time=2026-11-21T11:04:05.006Z level=info message=listening connections=3 path=/run/s\n")
    }

    @Test func `I8: repeated messages are suppressed, and their number is logged`() throws {
        let text = try written(level: .debug) { log in
            let now = Atomic<Int64>(0)
            let logger = log.logger { now.load(ordering: .relaxed) }
            for _ in 0..<StructuredLog.most + 7 { logger.warning("no room") }
            logger.error("another")
            for _ in 0..<2 * StructuredLog.most { logger.debug("asked for") }
            now.store(LineLimit<String>.period * 1_000_000_000, ordering: .relaxed)
            logger.warning("no room")
        }
        let lines = text.split(separator: "\n").map { $0.drop { $0 != " " }.dropFirst() }
        func count(_ message: String) -> Int { lines.count { $0.contains(" message=\(message)") } }
        #expect(count("\"no room\"") == StructuredLog.most + 1)
        #expect(count("another") == 1)
        #expect(count("\"asked for\"") == 2 * StructuredLog.most)
        #expect(
            lines.suffix(2) == [
                "level=notice message=\"log messages suppressed\" count=7 suppressed_message=\"no room\"",
                "level=warning message=\"no room\"",
            ])
    }

    @Test func `a record for the journal has a priority and no time`() throws {
        let text = try written(level: .trace, journal: true) { log in
            for level in Logger.Level.allCases { log.logger().log(level: level, "m") }
        }
        #expect(
            text == """
                <7>level=trace message=m
                <7>level=debug message=m
                <6>level=info message=m
                <5>level=notice message=m
                <4>level=warning message=m
                <3>level=error message=m
                <2>level=critical message=m

                """)
    }

    @Test func `the journal is recognized by the stream, not by the variable alone`() throws {
        try Fixture.withDirectory { directory in
            let descriptor = open("\(directory)/log", O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
            defer { close(descriptor) }
            var status = stat()
            try #require(fstat(descriptor, &status) == 0)
            #expect(Journal.isConnected(descriptor, to: "\(status.st_dev):\(status.st_ino)"))
            #expect(!Journal.isConnected(descriptor, to: "\(status.st_dev):\(status.st_ino + 1)"))
            #expect(!Journal.isConnected(descriptor, to: ""))
            #expect(!Journal.isConnected(descriptor, to: nil))
        }
    }

    @Test func `no value can break a line or move the cursor`() throws {
        let text = try written { log in
            log.logger().info(
                "two\nlines",
                metadata: ["a b=\"": "\u{1b}[2J\u{202e}\u{0}", "quotes": "\"\\", "empty": "", "name": "Zoë"])
        }
        #expect(
            text == "time=2026-11-21T11:04:05.006Z level=info message=\"two\\nlines\" "
                + "a_b__=\"\\u{1b}[2J\\u{202e}\\u{0}\" empty=\"\" name=\"Zoë\" quotes=\"\\\"\\\\\"\n")
    }

    @Test func `I8: long values are truncated`() throws {
        let text = try written { log in log.logger().info("\(String(repeating: "x", count: 1 << 20))") }
        #expect(text.count < LogFormat.longestValue + 100)
        #expect(text.hasSuffix("x…\"\n"))
    }

    @Test func `a changed threshold affects existing loggers`() throws {
        let text = try written { log in
            let logger = log.logger()
            logger.debug("not yet")
            log.level.value = .debug
            logger.debug("now")
            log.level.value = .critical
            logger.error("no more")
        }
        #expect(text == "time=2026-11-21T11:04:05.006Z level=debug message=now\n")
    }

    @Test func `a level set on one logger affects no other`() throws {
        let text = try written { log in
            var verbose = log.logger()
            verbose.logLevel = .trace
            verbose.trace("a")
            log.logger().trace("b")
        }
        #expect(text == "time=2026-11-21T11:04:05.006Z level=trace message=a\n")
    }

    @Test func `a logger's metadata is in each of its lines only`() throws {
        let text = try written { log in
            var logger = log.logger()
            logger[metadataKey: "peer"] = "1000"
            logger.info("a", metadata: ["n": "1"])
            log.logger().info("b")
        }
        #expect(
            text == """
                time=2026-11-21T11:04:05.006Z level=info message=a n=1 peer=1000
                time=2026-11-21T11:04:05.006Z level=info message=b

                """)
    }

    @Test func `lines of many threads do not mix`() throws {
        let text = try written(level: .debug) { log in
            let logger = log.logger()
            DispatchQueue.concurrentPerform(iterations: 8) { thread in
                for index in 0..<200 { logger.debug("m", metadata: ["id": "\(thread)-\(index)"]) }
            }
        }
        let lines = text.split(separator: "\n")
        #expect(lines.count == 1600)
        #expect(Set(lines).count == 1600)
        #expect(lines.allSatisfy { $0.hasPrefix("time=2026-11-21T11:04:05.006Z level=debug message=m id=") })
    }

    @Test(
        arguments: [
            (0, "1970-01-01T00:00:00.000Z"), (-1, "1969-12-31T23:59:59.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"), (951_868_800, "2000-03-01T00:00:00.000Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000Z"), (4_107_542_400, "2100-03-01T00:00:00.000Z"),
            (-2_203_891_200, "1900-03-01T00:00:00.000Z"), (-62_135_596_800, "0001-01-01T00:00:00.000Z"),
        ] as [(Int64, String)])
    func `times are correct at leap days and turns of the year`(_ seconds: Int64, _ text: String) {
        #expect(UTCTime.format(seconds: seconds, milliseconds: 0) == text)
    }

    @Test func `every day of 800 years agrees with Foundation`() throws {
        var calendar = Calendar(identifier: .gregorian)
        calendar.timeZone = try #require(TimeZone(secondsFromGMT: 0))
        // Foundation uses the Julian calendar before October 1582.
        for day in stride(from: Int64(-141_000), to: 146_097, by: 1) {
            let parts = calendar.dateComponents(
                [.year, .month, .day], from: Date(timeIntervalSince1970: Double(day) * 86_400))
            let date = [(parts.year ?? 0, 4), (parts.month ?? 0, 2), (parts.day ?? 0, 2)].map { number, width in
                String(repeating: "0", count: width - "\(number)".count) + "\(number)"
            }.joined(separator: "-")
            guard UTCTime.format(seconds: day * 86_400, milliseconds: 0) == "\(date)T00:00:00.000Z" else {
                Issue.record("day \(day) is \(date), not \(UTCTime.format(seconds: day * 86_400, milliseconds: 0))")
                return
            }
        }
    }
}
