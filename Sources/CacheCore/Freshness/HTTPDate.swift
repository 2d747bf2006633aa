/// HTTP dates (RFC 9110 section 5.6.7) in the preferred form and the two obsolete ones. Names are case-insensitive, and
/// only GMT is accepted, as RFC 9111 section 4.2 requires of caches.
public enum HTTPDate {
    private static let months = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
    /// Days of each month without a leap day. An array literal in a function would be allocated for each date.
    private static let lengths: [Int64] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    private static let shortDays: Set = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
    private static let longDays: Set = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]

    /// Parses a date into seconds since 1970; nil if it is invalid.
    /// - Parameter now: seconds since 1970, to complete two-digit years.
    public static func seconds(_ text: String, now: Int64) -> Int64? {
        var scanner = FieldScanner(text)
        guard let dayName = scanner.letters() else { return nil }
        let seconds: Int64?
        if !scanner.skip(",") {
            seconds = shortDays.contains(dayName) ? asctime(&scanner) : nil
        } else if shortDays.contains(dayName) {
            seconds = preferred(&scanner)
        } else {
            seconds = longDays.contains(dayName) ? rfc850(&scanner, now: now) : nil
        }
        return scanner.isAtEnd ? seconds : nil
    }

    /// `Sun, 06 Nov 1994 08:49:37 GMT`, after the comma.
    private static func preferred(_ scanner: inout FieldScanner) -> Int64? {
        guard scanner.skip(" "), let day = scanner.digits(2), scanner.skip(" "), let month = month(&scanner),
            scanner.skip(" "), let year = scanner.digits(4), scanner.skip(" "), let time = time(&scanner),
            scanner.skip(" "), scanner.letters() == "gmt"
        else { return nil }
        return moment(year: year, month: month, day: day, time: time)
    }

    /// `Sunday, 06-Nov-94 08:49:37 GMT`, after the comma. A year more than 50 years ahead is in the previous century.
    private static func rfc850(_ scanner: inout FieldScanner, now: Int64) -> Int64? {
        guard scanner.skip(" "), let day = scanner.digits(2), scanner.skip("-"), let month = month(&scanner),
            scanner.skip("-"), let shortYear = scanner.digits(2), scanner.skip(" "), let time = time(&scanner),
            scanner.skip(" "), scanner.letters() == "gmt"
        else { return nil }
        let secondsOfYear: Int64 = 31_556_952
        let century = (1970 + now / secondsOfYear) / 100 * 100
        let year = century + shortYear
        guard let near = moment(year: year, month: month, day: day, time: time), near <= now + 50 * secondsOfYear
        else { return moment(year: year - 100, month: month, day: day, time: time) }
        return near
    }

    /// `Sun Nov  6 08:49:37 1994`, after the day's name.
    private static func asctime(_ scanner: inout FieldScanner) -> Int64? {
        guard scanner.skip(" "), let month = month(&scanner), scanner.skip(" "),
            let day = scanner.skip(" ") ? scanner.digits(1) : scanner.digits(2), scanner.skip(" "),
            let time = time(&scanner), scanner.skip(" "), let year = scanner.digits(4)
        else { return nil }
        return moment(year: year, month: month, day: day, time: time)
    }

    /// 1 to 12.
    private static func month(_ scanner: inout FieldScanner) -> Int64? {
        scanner.letters().flatMap { months.firstIndex(of: $0) }.map { Int64($0) + 1 }
    }

    /// Seconds since midnight; a leap second counts as the first second of the next day.
    private static func time(_ scanner: inout FieldScanner) -> Int64? {
        guard let hour = scanner.digits(2), scanner.skip(":"), let minute = scanner.digits(2), scanner.skip(":"),
            let second = scanner.digits(2), hour < 24, minute < 60, second < 61
        else { return nil }
        return (hour * 60 + minute) * 60 + second
    }

    private static func moment(year: Int64, month: Int64, day: Int64, time: Int64) -> Int64? {
        guard (1...length(ofMonth: month, in: year)).contains(day) else { return nil }
        return days(year: year, month: month, day: day) * 86_400 + time
    }

    private static func length(ofMonth month: Int64, in year: Int64) -> Int64 {
        let isLeapYear = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
        return month == 2 && isLeapYear ? 29 : lengths[Int(month) - 1]
    }

    /// Days since 1970-01-01 of a Gregorian date. Counts years from March, so that the leap day is the last.
    private static func days(year: Int64, month: Int64, day: Int64) -> Int64 {
        let marchYear = month > 2 ? year : year - 1
        let monthsSinceMarch = (month + 9) % 12
        let dayOfYear = (153 * monthsSinceMarch + 2) / 5 + day - 1
        let leapDays = marchYear / 4 - marchYear / 100 + marchYear / 400
        return marchYear * 365 + leapDays + dayOfYear - 719_468
    }
}
