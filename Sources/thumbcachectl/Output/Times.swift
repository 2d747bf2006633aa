import Glibc

/// Formats times for people. Output for programs stays in seconds.
enum Times {
    /// A time of the system clock.
    struct Moment {
        /// Since 1970.
        let seconds: Int
        let milliseconds: Int

        static var now: Moment {
            var time = timespec()
            clock_gettime(CLOCK_REALTIME, &time)
            return Moment(seconds: time.tv_sec, milliseconds: time.tv_nsec / 1_000_000)
        }

        /// Local time, as in `2026-11-23 11:53:46`.
        var local: String { Times.text(seconds, "%Y-%m-%d %H:%M:%S") { localtime_r($0, $1) } }

        /// UTC in the format of RFC 3339, as in `2026-11-23T11:53:46.120Z`.
        var utc: String {
            let digits = "\(1000 + milliseconds)".dropFirst()
            return Times.text(seconds, "%Y-%m-%dT%H:%M:%S") { gmtime_r($0, $1) } + ".\(digits)Z"
        }
    }

    private static func text(
        _ seconds: Int, _ format: String,
        _ convert: (UnsafePointer<time_t>, UnsafeMutablePointer<tm>) -> UnsafeMutablePointer<tm>?
    ) -> String {
        var (time, parts) = (time_t(seconds), tm())
        guard convert(&time, &parts) != nil else { return "\(seconds)" }
        var bytes = [CChar](repeating: 0, count: 64)
        let count = strftime(&bytes, bytes.count, format, &parts)
        return String(decoding: bytes.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    /// A duration that the daemon reports, which may be no number.
    static func duration(_ seconds: Double) -> String {
        Int(exactly: seconds.rounded(.towardZero)).map { duration($0) } ?? "-"
    }

    static func duration(_ seconds: Int) -> String {
        let units = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")]
        guard let first = units.firstIndex(where: { seconds.magnitude >= $0.0 }) else { return "0 s" }
        let (length, name) = units[first]
        var text = "\(seconds / length) \(name)"
        let rest = Int((seconds % length).magnitude)
        if first + 1 < units.count, rest / units[first + 1].0 > 0 {
            text += " \(rest / units[first + 1].0) \(units[first + 1].1)"
        }
        return text
    }
}
