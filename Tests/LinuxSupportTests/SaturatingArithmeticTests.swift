import LinuxSupport
import Testing

@Suite struct SaturatingArithmeticTests {
    private static let numbers: [Int8] = Array(.min ... .max)

    @Test func `each result is the exact one, limited to the range of the type`() {
        for left in Self.numbers {
            for right in Self.numbers {
                let (wideLeft, wideRight) = (Int(left), Int(right))
                #expect(left.saturatingAdd(right) == Int8(clamping: wideLeft + wideRight))
                #expect(left.saturatingSubtract(right) == Int8(clamping: wideLeft - wideRight))
                #expect(left.saturatingMultiply(right) == Int8(clamping: wideLeft * wideRight))
            }
        }
    }

    @Test func `unsigned results stay between zero and the largest number`() {
        for left in UInt8.min ... .max {
            for right in UInt8.min ... .max {
                let (wideLeft, wideRight) = (Int(left), Int(right))
                #expect(left.saturatingAdd(right) == UInt8(clamping: wideLeft + wideRight))
                #expect(left.saturatingSubtract(right) == UInt8(clamping: wideLeft - wideRight))
                #expect(left.saturatingMultiply(right) == UInt8(clamping: wideLeft * wideRight))
            }
        }
    }
}
