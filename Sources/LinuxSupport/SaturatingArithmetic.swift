/// Arithmetic on numbers from outside the process. The operators trap on overflow; these functions return the bound that
/// was exceeded.
extension FixedWidthInteger {
    /// The sum, limited to the range of the type.
    @inlinable public func saturatingAdd(_ other: Self) -> Self {
        let (result, overflow) = addingReportingOverflow(other)
        return overflow ? (other < 0 ? .min : .max) : result
    }

    /// The difference, limited to the range of the type.
    @inlinable public func saturatingSubtract(_ other: Self) -> Self {
        let (result, overflow) = subtractingReportingOverflow(other)
        return overflow ? (other < 0 ? .max : .min) : result
    }

    /// The product, limited to the range of the type.
    @inlinable public func saturatingMultiply(_ other: Self) -> Self {
        let (result, overflow) = multipliedReportingOverflow(by: other)
        return overflow ? ((self < 0) == (other < 0) ? .max : .min) : result
    }
}
