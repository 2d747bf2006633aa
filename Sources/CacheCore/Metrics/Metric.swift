/// A metric: its declaration and its current samples.
///
/// METRICS, INFO and docs/metrics.md are generated from these values. A type that counts something returns its metrics
/// itself, so that name, unit, help and visibility are declared once, beside the count.
public struct Metric: Sendable {
    public enum Kind: String, Sendable {
        /// Grows until the daemon ends.
        case counter
        case gauge
        case histogram
    }

    /// A section of INFO, and a table of docs/metrics.md.
    public enum Section: String, CaseIterable, Sendable {
        case server, clients, memory, cache, store, fetch, sessions, purge
    }

    /// Which clients get a sample. METRICS itself is for admins and observers.
    public enum Visibility: Sendable {
        /// METRICS only: INFO has a field of Redis's name instead, or none.
        case metrics
        /// METRICS, and INFO for admins and observers.
        case observers
        /// METRICS, and INFO for every client with the value of its own account.
        case everyone
    }

    public struct Sample: Sendable {
        /// `_bucket`, `_sum` or `_count` of a histogram; else empty.
        public let suffix: String
        public let labels: [(name: String, value: String)]
        public let value: String
        let visibility: Visibility

        public init(
            _ value: Int, labels: KeyValuePairs<String, String> = [:], visibility: Visibility = .observers
        ) {
            self.init(text: "\(value)", labels: labels.map { ($0.key, $0.value) }, visibility: visibility)
        }

        public init(
            suffix: String = "", text: String, labels: [(name: String, value: String)],
            visibility: Visibility = .observers
        ) {
            (self.suffix, self.labels, value, self.visibility) = (suffix, labels, text, visibility)
        }
    }

    /// A line of INFO.
    public struct InfoField: Sendable {
        public let name: String
        public let value: String
        public let visibility: Visibility

        package init(_ name: String, _ value: String, _ visibility: Visibility = .observers) {
            (self.name, self.value, self.visibility) = (name, value, visibility)
        }
    }

    public let kind: Kind
    public let unit: String
    /// One sentence without line breaks and backslashes.
    public let help: String
    private let baseName: String
    private let isForEveryone: Bool
    private let makeSamples: @Sendable () -> [Sample]
    private let makeInfoFields: (@Sendable () -> [InfoField])?

    /// - Parameters:
    ///   - name: without the prefix `thumbcached_`. A name that begins with `process_` gets no prefix, since
    ///     dashboards expect these names from every program.
    ///   - isForEveryone: whether a sample or field is visible to every client. If not, INFO creates none for clients
    ///     other than admins and observers.
    ///   - samples: evaluated at each access of ``samples``.
    ///   - infoFields: nil for one field per sample, named after the metric and the sample's label values.
    public init(
        _ name: String, _ kind: Kind, unit: String, _ help: String, isForEveryone: Bool = false,
        _ samples: @autoclosure @escaping @Sendable () -> [Sample],
        infoFields: (@Sendable () -> [InfoField])? = nil
    ) {
        (baseName, self.kind, self.unit, self.help) = (name, kind, unit, help)
        (self.isForEveryone, makeSamples, makeInfoFields) = (isForEveryone, samples, infoFields)
    }

    /// With the unit as a suffix, and `_total` for a counter: https://prometheus.io/docs/practices/naming/
    public var name: String { baseName.hasPrefix("process_") ? baseName : "thumbcached_\(baseName)" }

    /// The current samples. Each access creates them, because INFO omits many, and those of a histogram take 0.3 ms.
    public var samples: [Sample] { makeSamples() }

    /// The lines of INFO for admins and observers, or for other clients.
    public func infoFields(isObserver: Bool) -> [InfoField] {
        guard isObserver || isForEveryone else { return [] }
        let isShown = { (visibility: Visibility) in
            visibility == .everyone || isObserver && visibility == .observers
        }
        if let makeInfoFields { return makeInfoFields().filter { isShown($0.visibility) } }
        return samples.filter { isShown($0.visibility) }.map { sample in
            InfoField(Self.infoName(baseName, sample.labels.map(\.value)), sample.value, sample.visibility)
        }
    }

    public init(
        _ name: String, _ kind: Kind, unit: String, _ help: String, _ value: Int, _ visibility: Visibility = .observers
    ) {
        self.init(
            name, kind, unit: unit, help, isForEveryone: visibility == .everyone,
            [Sample(value, visibility: visibility)])
    }

    /// `hits_total` with the label value `memory` is `hits_memory` in INFO.
    package static func infoName(_ name: String, _ labelValues: [String]) -> String {
        var result = name
        if result.hasSuffix("_total") { result.removeLast("_total".count) }
        for value in labelValues { result += "_\(value)" }
        return result
    }
}
