import CacheCore

/// The text of METRICS.
public struct ServerMetrics: Sendable {
    private let metrics: @Sendable () -> [Metric]
    private let prepare: @Sendable () async -> Void

    /// - Parameter prepare: awaited before each call of `metrics`.
    public init(prepare: @escaping @Sendable () async -> Void = {}, metrics: @escaping @Sendable () -> [Metric]) {
        (self.prepare, self.metrics) = (prepare, metrics)
    }

    func text() async -> String {
        await prepare()
        return metrics().reduce(into: "") { $1.write(to: &$0) }
    }
}

extension Metric {
    /// Writes Prometheus's text format.
    /// https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
    fileprivate func write(to text: inout String) {
        text += "# HELP \(name) \(help)\n# TYPE \(name) \(kind.rawValue)\n"
        for sample in samples {
            text += name + sample.suffix
            if !sample.labels.isEmpty {
                let labels = sample.labels.map { "\($0.name)=\"\(Self.escaped($0.value))\"" }
                text += "{\(labels.joined(separator: ","))}"
            }
            text += " \(sample.value)\n"
        }
    }

    private static func escaped(_ value: String) -> String {
        value.reduce(into: "") { text, character in
            switch character {
            case "\\": text += "\\\\"
            case "\"": text += "\\\""
            case "\n": text += "\\n"
            default: text.append(character)
            }
        }
    }
}
