/// Formats text and numbers for HTML and SVG. All foreign text passes ``escaped(_:)``.
enum PageText {
    /// The limit of a text in characters; longer ones are truncated.
    static let longest = 200

    /// Escapes text for an element or attribute, in one line.
    static func escaped(_ text: String) -> String {
        var shown = ""
        for scalar in text.unicodeScalars.prefix(longest) {
            switch scalar {
            case "&": shown += "&amp;"
            case "<": shown += "&lt;"
            case ">": shown += "&gt;"
            case "\"": shown += "&quot;"
            case "'": shown += "&#39;"
            default:
                // Control characters, and those that change the text direction.
                switch scalar.properties.generalCategory {
                case .control, .format, .lineSeparator, .paragraphSeparator, .privateUse: shown += "\u{fffd}"
                default: shown.unicodeScalars.append(scalar)
                }
            }
        }
        return text.unicodeScalars.count > longest ? shown + "…" : shown
    }

    static let nothing = "–"

    /// `1,234,567`.
    static func count(_ value: Double?) -> String {
        guard let value, value.isFinite, abs(value) < 1e15 else { return nothing }
        let digits = String(Int(value.rounded()).magnitude)
        var text = ""
        for (index, digit) in digits.enumerated() {
            if index > 0, (digits.count - index).isMultiple(of: 3) { text += "," }
            text.append(digit)
        }
        return value.rounded() < 0 ? "-" + text : text
    }

    /// - Parameter digits: after the decimal point.
    static func decimal(_ value: Double, digits: Int) -> String {
        guard value.isFinite, abs(value) < 1e12 else { return nothing }
        let scale = (0..<digits).reduce(1) { scale, _ in scale * 10 }
        let (whole, rest) = Int((abs(value) * Double(scale)).rounded()).quotientAndRemainder(dividingBy: scale)
        let sign = value < 0 && (whole, rest) != (0, 0) ? "-" : ""
        return digits == 0 ? "\(sign)\(whole)" : "\(sign)\(whole).\("\(scale + rest)".dropFirst())"
    }

    /// About three significant digits.
    static func short(_ value: Double) -> String {
        decimal(value, digits: abs(value) < 9.995 ? 2 : abs(value) < 99.95 ? 1 : 0)
    }

    static func share(_ value: Double?) -> String {
        guard let value, value.isFinite else { return nothing }
        // Only all is 100 %: 0.999999 is shown as 99.9 %.
        let shown = value < 1 ? min(value * 100, 99.9) : 100
        return "\(decimal(shown, digits: shown == 100 ? 0 : 1)) %"
    }

    static func bytes(_ value: Double?) -> String {
        guard let value, value.isFinite, value >= 0 else { return nothing }
        var (amount, unit) = (value, "B")
        for next in ["KiB", "MiB", "GiB", "TiB"] where amount >= 1023.5 { (amount, unit) = (amount / 1024, next) }
        return unit == "B" ? "\(count(amount)) B" : "\(short(amount)) \(unit)"
    }

    /// A measured time: `12.3 µs`, `4.56 ms`, `1.20 s`.
    static func time(_ seconds: Double?) -> String {
        guard let seconds, seconds.isFinite, seconds >= 0 else { return nothing }
        if seconds < 0.0009995 { return "\(short(seconds * 1e6)) µs" }
        return seconds < 0.9995 ? "\(short(seconds * 1e3)) ms" : "\(short(seconds)) s"
    }

    /// A long duration: `3 d 4 h`.
    static func duration(_ seconds: Double?) -> String {
        guard let seconds, seconds.isFinite, (0..<1e12).contains(seconds) else { return nothing }
        let all = Int(seconds)
        return switch all {
        case ..<60: "\(all) s"
        case ..<3_600: "\(all / 60) min \(all % 60) s"
        case ..<86_400: "\(all / 3_600) h \(all % 3_600 / 60) min"
        default: "\(all / 86_400) d \(all % 86_400 / 3_600) h"
        }
    }
}
