/// One metric with its samples, as Prometheus reads it.
/// https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
public struct MetricFamily: Sendable {
    public enum Kind: String, Sendable {
        /// Grows until the next start.
        case counter
        case gauge
        case histogram
    }

    /// What is known of one set of labels.
    public struct Sample: Sendable {
        let suffix: String
        let labels: [(name: String, value: String)]
        let value: String

        public init(_ value: Int, labels: KeyValuePairs<String, String> = [:]) {
            self.init(text: "\(value)", labels: labels.map { ($0.key, $0.value) })
        }

        init(_ suffix: String = "", text: String, labels: [(name: String, value: String)]) {
            (self.suffix, self.labels, value) = (suffix, labels, text)
        }
    }

    /// With its unit, and `_total` for a counter: https://prometheus.io/docs/practices/naming/
    public let name: String
    let kind: Kind
    let help: String
    let samples: [Sample]

    /// - Parameters:
    ///   - name: without the `thumbcached_` that all begin with.
    ///   - help: a sentence without a line break or backslash.
    public init(_ name: String, _ kind: Kind, _ help: String, _ samples: [Sample]) {
        (self.name, self.kind, self.help, self.samples) = ("thumbcached_\(name)", kind, help, samples)
    }

    /// One without labels.
    public init(_ name: String, _ kind: Kind, _ help: String, _ value: Int) {
        self.init(name, kind, help, [Sample(value)])
    }

    func write(to text: inout String) {
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

/// The text of METRICS: what all parts of the program count, asked of them when somebody wants to know.
public struct ServerMetrics: Sendable {
    private let families: @Sendable () -> [MetricFamily]
    private let beforehand: @Sendable () async -> Void

    /// - Parameters:
    ///   - beforehand: finds out what ``families`` then says.
    ///   - families: in the order in which they are to stand.
    public init(
        beforehand: @escaping @Sendable () async -> Void = {}, families: @escaping @Sendable () -> [MetricFamily]
    ) {
        (self.beforehand, self.families) = (beforehand, families)
    }

    func text() async -> String {
        await beforehand()
        return families().reduce(into: "") { $1.write(to: &$0) }
    }
}
