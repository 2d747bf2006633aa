import Glibc
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import ThumbcacheProtocol

/// Writes log records to standard error, each as one line in one write.
///
/// with its priority as `<6>` (sd-daemon(3)); otherwise with the time.
public struct StructuredLog: LogHandler {
    let label: String
    /// Returns the lowest level that is written. Called for each record, so that a reload affects every logger.
    let threshold: @Sendable () -> Logger.Level
    let isJournal: Bool
    var output = StandardError()
    /// Nanoseconds since 1970.
    var clock: @Sendable () -> Int64 = { nanoseconds(of: CLOCK_REALTIME) }
    public var metadata: Logger.Metadata = [:]
    public var metadataProvider: Logger.MetadataProvider?
    /// The level of this logger; nil for the threshold.
    var ownLevel: Logger.Level?

    private let limit = NIOLockedValueBox(LineLimit<String>(most: most))

    /// Lines of the same message in a minute. Debug and trace messages have no limit.
    static var most: Int { 100 }

    public init(
        label: String, threshold: @escaping @Sendable () -> Logger.Level, isJournal: Bool,
        metadataProvider: Logger.MetadataProvider? = nil
    ) {
        (self.label, self.threshold, self.isJournal) = (label, threshold, isJournal)
        self.metadataProvider = metadataProvider
    }

    public var logLevel: Logger.Level {
        get { ownLevel ?? threshold() }
        set { ownLevel = newValue }
    }

    public subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    public func log(event: LogEvent) {
        let message = event.message.description
        guard event.level >= .info else { return output.write(line(event.level, message, metadata(of: event))) }
        let (isWritten, unwritten) = limit.withLockedValue { $0.count(message, at: clock() / 1_000_000_000) }
        for (message, count) in unwritten {
            let fields: Logger.Metadata = ["suppressed_message": "\(message)", "count": "\(count)"]
            output.write(line(.notice, "log messages suppressed", fields))
        }
        if isWritten { output.write(line(event.level, message, metadata(of: event))) }
    }

    private func metadata(of event: LogEvent) -> Logger.Metadata {
        var all = metadata
        if let provided = metadataProvider?.get() { all.merge(provided) { $1 } }
        if let own = event.metadata { all.merge(own) { $1 } }
        if let error = event.error { all["error"] = .string("\(error)") }
        return all
    }

    private func line(_ level: Logger.Level, _ message: String, _ metadata: Logger.Metadata) -> String {
        var start = "<\(level.priority)>"
        if !isJournal {
            let (seconds, rest) = clock().quotientAndRemainder(dividingBy: 1_000_000_000)
            start = "time=\(UTCTime.format(seconds: seconds, milliseconds: rest / 1_000_000)) "
        }
        let fields = metadata.sorted { $0.key < $1.key }.map { (key: $0.key, value: $0.value.description) }
        return start + LogFormat.line([("level", level.rawValue), ("message", message)] + fields)
    }
}

/// Standard error, or another descriptor in tests.
public struct StandardError: Sendable {
    private let descriptor: CInt

    public init(descriptor: CInt = STDERR_FILENO) { self.descriptor = descriptor }

    /// Writes the text in one call if possible, so that lines of several threads do not mix.
    public func write(_ text: String) {
        do throws(SystemError) {
            try writeAll(Array(text.utf8), to: descriptor)
        } catch {
            // There is no other place to report the error.
        }
    }
}

extension Logger.Level {
    /// syslog(3).
    fileprivate var priority: Int {
        switch self {
        case .trace, .debug: 7
        case .info: 6
        case .notice: 5
        case .warning: 4
        case .error: 3
        case .critical: 2
        }
    }
}

/// Formats logfmt: `key=value key="a value"`, always on one line.
enum LogFormat {
    /// Characters of one value; longer values are truncated.
    static let longestValue = 2048

    static func line(_ fields: [(key: String, value: String)]) -> String {
        fields.map { "\(key($0.key))=\(value($0.value))" }.joined(separator: " ") + "\n"
    }

    private static func key(_ text: String) -> String {
        let safe = text.unicodeScalars.map { isPlain($0) ? Character($0) : "_" }
        return safe.isEmpty ? "_" : String(safe)
    }

    private static func value(_ text: String) -> String {
        let scalars = text.unicodeScalars
        if !scalars.isEmpty, scalars.allSatisfy(isPlain), scalars.count <= longestValue { return text }
        let shown = escaped(scalars.prefix(longestValue), hidden: { oneLine(String($0)) })
        return "\"\(shown)\(scalars.count > longestValue ? "…" : "")\""
    }

    private static func isPlain(_ scalar: Unicode.Scalar) -> Bool {
        ("!"..."~").contains(scalar) && scalar != "\"" && scalar != "=" && scalar != "\\"
    }
}

enum UTCTime {
    /// Formats a time since 1970 as RFC 3339: `2026-11-21T11:04:05.006Z`.
    static func format(seconds: Int64, milliseconds: Int64) -> String {
        var (moment, parts) = (time_t(seconds), tm())
        gmtime_r(&moment, &parts)
        let text = String(unsafeUninitializedCapacity: 64) {
            $0.withMemoryRebound(to: CChar.self) { strftime($0.baseAddress, $0.count, "%04Y-%m-%dT%H:%M:%S", &parts) }
        }
        return "\(text).\("\(1_000 + milliseconds)".dropFirst())Z"
    }
}
