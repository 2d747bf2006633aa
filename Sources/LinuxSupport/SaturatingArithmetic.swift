/// Arithmetic for untrusted numbers. These functions return the nearest bound on overflow, where the operators trap.
extension FixedWidthInteger {
    @inlinable public func saturatingAdd(_ other: Self) -> Self {
        let (result, overflow) = addingReportingOverflow(other)
        return overflow ? (other < 0 ? .min : .max) : result
    }

    @inlinable public func saturatingSubtract(_ other: Self) -> Self {
        let (result, overflow) = subtractingReportingOverflow(other)
        return overflow ? (other < 0 ? .max : .min) : result
    }

    @inlinable public func saturatingMultiply(_ other: Self) -> Self {
        let (result, overflow) = multipliedReportingOverflow(by: other)
        return overflow ? ((self < 0) == (other < 0) ? .max : .min) : result
    }
}
