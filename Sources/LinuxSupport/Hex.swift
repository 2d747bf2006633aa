/// Hexadecimal digits, written in lower case.
public enum Hex {
    @inlinable public static func digit(_ value: UInt8) -> UInt8 {
        value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "a") + value - 10
    }

    @inlinable public static func text(_ bytes: some Collection<UInt8>) -> String {
        String(unsafeUninitializedCapacity: 2 * bytes.count) { digits in
            var count = 0
            for byte in bytes {
                digits[count] = digit(byte >> 4)
                digits[count + 1] = digit(byte & 15)
                count += 2
            }
            return count
        }
    }

    @inlinable public static func write(
        _ word: UInt64, to digits: UnsafeMutableBufferPointer<UInt8>, at position: Int
    ) {
        for index in 0..<16 {
            digits[position + index] = digit(UInt8(truncatingIfNeeded: word >> (60 - 4 * UInt64(index))) & 15)
        }
    }

    /// The value of a digit in either case; nil for any other byte.
    @inlinable public static func value(of digit: UInt8) -> UInt8? {
        switch digit {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): digit - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): digit - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): digit - UInt8(ascii: "A") + 10
        default: nil
        }
    }

    /// Whether all bytes are lower-case digits, the only spelling that ``Hex`` writes.
    @inlinable public static func isLowerCase(_ digits: some Sequence<UInt8>) -> Bool {
        digits.allSatisfy { value(of: $0) != nil && !(UInt8(ascii: "A")...UInt8(ascii: "F")).contains($0) }
    }

    /// The value of up to 16 lower-case digits; nil for any other input.
    @inlinable public static func word(_ digits: some Collection<UInt8>) -> UInt64? {
        guard !digits.isEmpty, digits.count <= 16, isLowerCase(digits) else { return nil }
        return digits.reduce(0) { $0 << 4 | UInt64(value(of: $1) ?? 0) }
    }
}
