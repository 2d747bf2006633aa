import Glibc
import LinuxSupport
import RESP

/// logfmt: `key=value key="a value"`, on one line whatever the values hold.
enum LogFormat {
    /// Characters of one value; more are cut, so that no value can flood the log.
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
        var result = "\""
        for scalar in scalars.prefix(longestValue) {
            switch scalar {
            case "\"", "\\": result += "\\\(scalar)"
            case "\n": result += "\\n"
            case "\t": result += "\\t"
            case "\r": result += "\\r"
            default:
                if scalar.isVisible { result.unicodeScalars.append(scalar) } else { result += escape(scalar) }
            }
        }
        return result + (scalars.count > longestValue ? "…\"" : "\"")
    }

    /// Needs no quotes.
    private static func isPlain(_ scalar: Unicode.Scalar) -> Bool {
        ("!"..."~").contains(scalar) && scalar != "\"" && scalar != "=" && scalar != "\\"
    }

    private static func escape(_ scalar: Unicode.Scalar) -> String {
        "\\u{\(String(scalar.value, radix: 16))}"
    }
}

/// Times in UTC, without a library of calendars.
enum UTCTime {
    /// Seconds and nanoseconds since 1970.
    typealias WallClock = @Sendable () -> (seconds: Int64, nanoseconds: Int64)

    static let wallClock: WallClock = {
        let now = nanoseconds(of: CLOCK_REALTIME)
        return (now / 1_000_000_000, now % 1_000_000_000)
    }

    /// RFC 3339, to the millisecond: `2026-11-21T11:04:05.006Z`.
    static func format(seconds: Int64, nanoseconds: Int64) -> String {
        let (days, second) = seconds.flooredDivision(by: 86_400)
        let (year, month, day) = civil(days)
        return "\(padded(year, 4))-\(padded(month, 2))-\(padded(day, 2))"
            + "T\(padded(second / 3600, 2)):\(padded(second / 60 % 60, 2)):\(padded(second % 60, 2))"
            + ".\(padded(nanoseconds / 1_000_000, 3))Z"
    }

    /// The date of a day counted from 1 January 1970, in the Gregorian calendar.
    ///
    /// Years are taken to begin in March, so that the day which some have and some have not is the last; then 400 years have
    /// 146,097 days, and the months from March on have 153 days in every five (Howard Hinnant, "chrono-Compatible
    /// Low-Level Date Algorithms").
    static func civil(_ days: Int64) -> (year: Int64, month: Int64, day: Int64) {
        let (era, dayOfEra) = (days + 719_468).flooredDivision(by: 146_097)
        let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let monthFromMarch = (5 * dayOfYear + 2) / 153
        let day = dayOfYear - (153 * monthFromMarch + 2) / 5 + 1
        let month = monthFromMarch < 10 ? monthFromMarch + 3 : monthFromMarch - 9
        return (yearOfEra + era * 400 + (month <= 2 ? 1 : 0), month, day)
    }

    private static func padded(_ number: Int64, _ width: Int) -> String {
        let digits = "\(number)"
        return String(repeating: "0", count: max(0, width - digits.count)) + digits
    }
}

extension Int64 {
    /// Rounded down, with a remainder that is never negative.
    fileprivate func flooredDivision(by divisor: Int64) -> (quotient: Int64, remainder: Int64) {
        let (quotient, remainder) = quotientAndRemainder(dividingBy: divisor)
        return remainder < 0 ? (quotient - 1, remainder + divisor) : (quotient, remainder)
    }
}
