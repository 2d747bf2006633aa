/// The line that declares a length: digits up to CRLF, after a marker that the caller has looked at.
///
/// Stricter than Redis where leniency could only hide a mistake: no sign but in `-1`, no leading zero, no space, and no
/// bare line feed.
enum LengthLine {
    /// Bytes a line may have, marker and CRLF included. A 64-bit number takes 23.
    static let longest = 32

    enum Outcome {
        /// A number, -1 or above; `Int.max` stands for all that are larger. `end` is the offset behind the CRLF.
        case number(Int, end: Int)
        case incomplete
        /// No such line. `text` is what stands in its place, without marker and CRLF.
        case invalid(text: Range<Int>)
    }

    /// Reads the line whose marker stands at `start`. What it answers does not depend on how much lies behind the line.
    static func read(_ bytes: UnsafeRawBufferPointer, at start: Int) -> Outcome {
        var index = start &+ 1
        var value = 0
        while index < bytes.count {
            let digit = bytes[index] &- UInt8(ascii: "0")
            guard digit <= 9 else { break }
            // Eighteen digits cannot overflow; a line that has more of them is read with care.
            guard index &- start <= 18 else { return readSlowly(bytes, at: start) }
            value = value &* 10 &+ Int(digit)
            index &+= 1
        }
        let digits = index &- start &- 1
        guard digits > 0, index &+ 1 < bytes.count, bytes[index] == CR, bytes[index &+ 1] == LF,
            digits == 1 || bytes[start &+ 1] != UInt8(ascii: "0")
        else { return readSlowly(bytes, at: start) }
        return .number(value, end: index &+ 2)
    }

    /// Everything but the usual: a line that is not there yet, a negative or enormous number, no number at all.
    private static func readSlowly(_ bytes: UnsafeRawBufferPointer, at start: Int) -> Outcome {
        let stop = min(bytes.count, start + longest)
        guard let end = bytes[start..<stop].firstIndex(of: LF) else {
            return stop == start + longest ? .invalid(text: start + 1..<stop) : .incomplete
        }
        guard end > start + 1, bytes[end - 1] == CR else { return .invalid(text: start + 1..<end) }
        let text = start + 1..<end - 1
        let digits = bytes[text]
        if digits.elementsEqual("-1".utf8) { return .number(-1, end: end + 1) }
        let number = wholeNumber(UnsafeRawBufferPointer(rebasing: digits))
        return number.map { .number($0, end: end + 1) } ?? .invalid(text: text)
    }

    /// The part of an invalid line that shows what is wrong with it: all up to the first byte that no number has.
    /// The rest stays unsaid, since a client that lost count may have put anything there, a token too.
    static func culprit(in text: some Collection<UInt8>) -> String {
        let signs: [UInt8] = [UInt8(ascii: "-"), UInt8(ascii: "+")]
        let unsigned = text.first.map(signs.contains) == true ? text.dropFirst() : text[...]
        let wrong = unsigned.firstIndex { $0 &- UInt8(ascii: "0") > 9 }
        let shown = wrong.map { text[...$0] } ?? text[...]
        return printableText(shown) + (shown.count < text.count ? "..." : "")
    }
}

/// A number of at most 32 decimal digits, without sign or leading zeros; `Int.max` stands for all that do not fit; else
/// nil. Not generic: another module would call it through witness tables, at 400 instructions a number.
public func wholeNumber(_ digits: UnsafeRawBufferPointer) -> Int? {
    guard let first = digits.first, digits.count <= 32, digits.count == 1 || first != UInt8(ascii: "0") else {
        return nil
    }
    var value = 0
    for byte in digits {
        let digit = byte &- UInt8(ascii: "0")
        guard digit <= 9 else { return nil }
        let (tens, isOver) = value.multipliedReportingOverflow(by: 10)
        let (sum, isOverToo) = tens.addingReportingOverflow(Int(digit))
        value = isOver || isOverToo || value == .max ? .max : sum
    }
    return value
}

let CR = UInt8(ascii: "\r")
let LF = UInt8(ascii: "\n")
