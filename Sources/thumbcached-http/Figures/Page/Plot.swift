/// A small plot of the recent samples as inline SVG, with the newest at the right end.
struct Plot {
    /// The accessible name.
    let label: String
    let values: [Double?]
    /// The minimum value at the top, so that noise does not fill the plot.
    var least: Double = 1
    /// The value at the top if it is fixed; nil for the largest value.
    var most: Double?
    /// The number of values that fill the width.
    var slots = History.capacity - 1

    private static var width: Double { 300 }
    private static var height: Double { 48 }

    private var shown: [Double?] { values.suffix(slots).map { $0.flatMap { $0.isFinite && $0 >= 0 ? $0 : nil } } }

    var top: Double { most ?? max(least, shown.compactMap { $0 }.max() ?? 0) }

    var svg: String {
        let (shown, top) = (shown, top)
        var (lines, areas) = ("", "")
        for run in runs(shown) {
            let points = run.map { index, value in
                let x = Double(index + slots - shown.count) / Double(max(1, slots - 1)) * Self.width
                return (x: x, y: (Self.height - 2) * (1 - min(1, value / top)) + 1)
            }
            let path = points.map { "\(Self.number($0.x)),\(Self.number($0.y))" }.joined(separator: "L")
            // A single value is a line of length 0, which round line caps draw as a dot.
            lines += "M\(path)" + (points.count == 1 ? "h0" : "")
            if let first = points.first, let last = points.last, points.count > 1 {
                let foot = Self.number(Self.height)
                areas += "M\(Self.number(first.x)),\(foot)L\(path)L\(Self.number(last.x)),\(foot)Z"
            }
        }
        return """
            <svg class="plot" viewBox="0 0 300 48" preserveAspectRatio="none" role="img" \
            aria-label="\(PageText.escaped(label))">\
            <path class="base" d="M0,47.5H300"/><path class="area" d="\(areas)"/><path class="line" d="\(lines)"/></svg>
            """
    }

    /// Runs of consecutive values, with their indices.
    private func runs(_ values: [Double?]) -> [[(Int, Double)]] {
        var runs: [[(Int, Double)]] = []
        var isOpen = false
        for (index, value) in values.enumerated() {
            if let value {
                if isOpen { runs[runs.count - 1].append((index, value)) } else { runs.append([(index, value)]) }
            }
            isOpen = value != nil
        }
        return runs
    }

    private static func number(_ value: Double) -> String { PageText.decimal(value, digits: 1) }
}
