/// A small plot of the last samples, as inline SVG. The newest stands at the right end.
struct Plot {
    /// What it shows, for those who do not see it.
    let label: String
    let values: [Double?]
    /// What the top stands for, at least: a plot of nothing but noise should not look like a mountain.
    var least: Double = 1
    /// The same, where it is known; else it is the largest value.
    var most: Double?
    /// How many values there can be.
    var slots = History.capacity - 1

    private static var width: Double { 300 }
    private static var height: Double { 48 }

    private var shown: [Double?] { values.suffix(slots).map { $0.flatMap { $0.isFinite && $0 >= 0 ? $0 : nil } } }

    /// What the top stands for.
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
            // A single value has a line as long as nothing, which round ends make a dot.
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

    /// Neighbours that have values, with their places.
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
