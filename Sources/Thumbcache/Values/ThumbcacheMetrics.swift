/// The reply to METRICS: samples parsed from Prometheus's text format.
/// https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
public struct ThumbcacheMetrics: Sendable {
    /// One sample.
    public struct Sample: Sendable, Hashable {
        /// The name in the text, with the prefix `thumbcached_` and, for a histogram, the suffix `_bucket`, `_sum` or
        /// `_count`.
        public let name: String
        /// Label values by label name.
        public let labels: [String: String]
        /// The value of the counter, gauge or bucket.
        public let value: Double
    }

    /// The samples in the order of the text.
    public let samples: [Sample]
    private let indices: [String: [Int]]

    /// Limits far above a daemon's output: a histogram has about 150 samples, an origin about 30.
    static let mostBytes = 8 << 20
    static let mostSamples = 100_000
    static let mostLabels = 16

    /// Parses the text. Comments and timestamps are ignored.
    /// - Throws: ``ThumbcacheError/protocolViolation(_:)`` if the text is invalid or exceeds 8 MiB or 100,000 samples.
    public init(_ text: String) throws(ThumbcacheError) {
        guard text.utf8.count <= Self.mostBytes else {
            throw .protocolViolation("the reply to METRICS has more than \(Self.mostBytes) bytes")
        }
        var samples: [Sample] = []
        var number = 0
        for line in text.utf8.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false) {
            number += 1
            var scanner = MetricScanner(line)
            guard !scanner.isComment else { continue }
            guard let sample = scanner.sample() else {
                throw .protocolViolation("line \(number) of METRICS is not valid in Prometheus's text format")
            }
            guard samples.count < Self.mostSamples else {
                throw .protocolViolation("the reply to METRICS has more than \(Self.mostSamples) samples")
            }
            samples.append(sample)
        }
        self.samples = samples
        indices = Dictionary(grouping: samples.indices) { samples[$0].name }
    }

    /// The value with this name and exactly these labels; nil if there is none.
    public subscript(name: String, labels: [String: String] = [:]) -> Double? {
        indices[name]?.lazy.map { samples[$0] }.first { $0.labels == labels }?.value
    }

    /// Returns the samples of a name that have at least these labels, in the order of the text.
    public func samples(of name: String, having labels: [String: String] = [:]) -> [Sample] {
        (indices[name] ?? []).lazy.map { samples[$0] }.filter { sample in
            labels.allSatisfy { sample.labels[$0.key] == $0.value }
        }
    }

    /// Returns the sum of the samples that have at least these labels; nil if there is none.
    public func sum(of name: String, having labels: [String: String] = [:]) -> Double? {
        let found = samples(of: name, having: labels)
        return found.isEmpty ? nil : found.reduce(0) { $0 + $1.value }
    }
}

private struct MetricScanner {
    private var rest: Substring.UTF8View

    init(_ line: Substring.UTF8View) {
        rest = line
        if rest.last == UInt8(ascii: "\r") { rest.removeLast() }
        skipBlanks()
    }

    var isComment: Bool { rest.isEmpty || rest.first == UInt8(ascii: "#") }

    mutating func sample() -> ThumbcacheMetrics.Sample? {
        guard let name = word(colon: true) else { return nil }
        guard let labels = labels() else { return nil }
        skipBlanks()
        guard let value = number() else { return nil }
        skipBlanks()
        // An optional timestamp in milliseconds.
        if !rest.isEmpty {
            guard let time = text(until: { $0 == 0x20 || $0 == 0x09 }), Int64(time) != nil else { return nil }
            skipBlanks()
        }
        return rest.isEmpty ? ThumbcacheMetrics.Sample(name: name, labels: labels, value: value) : nil
    }

    private mutating func labels() -> [String: String]? {
        skipBlanks()
        guard consume("{") else { return [:] }
        var labels: [String: String] = [:]
        while true {
            skipBlanks()
            if consume("}") { return labels }
            guard labels.count < ThumbcacheMetrics.mostLabels, let name = word(colon: false) else { return nil }
            skipBlanks()
            guard consume("=") else { return nil }
            skipBlanks()
            guard let value = quoted(), labels.updateValue(value, forKey: name) == nil else { return nil }
            skipBlanks()
            if !consume(",") { return consume("}") ? labels : nil }
        }
    }

    private mutating func quoted() -> String? {
        guard consume("\"") else { return nil }
        var bytes: [UInt8] = []
        while let byte = rest.popFirst() {
            switch byte {
            case UInt8(ascii: "\""): return String(decoding: bytes, as: UTF8.self)
            case UInt8(ascii: "\\"):
                guard let escaped = rest.popFirst() else { return nil }
                switch escaped {
                case UInt8(ascii: "n"): bytes.append(0x0a)
                case UInt8(ascii: "\\"), UInt8(ascii: "\""): bytes.append(escaped)
                default: return nil
                }
            default: bytes.append(byte)
            }
        }
        return nil
    }

    private mutating func number() -> Double? {
        guard let text = text(until: { $0 == 0x20 || $0 == 0x09 }) else { return nil }
        switch text {
        case "+Inf": return .infinity
        case "-Inf": return -.infinity
        case "NaN": return .nan
        default:
            // Double also accepts hexadecimal numbers and words, which the format does not have.
            let isDecimal = text.utf8.allSatisfy { (0x30...0x39).contains($0) || "+-.eE".utf8.contains($0) }
            return isDecimal ? Double(text) : nil
        }
    }

    private mutating func word(colon: Bool) -> String? {
        let word = rest.prefix { byte in
            switch byte {
            case 0x30...0x39, 0x41...0x5a, 0x61...0x7a, UInt8(ascii: "_"): true
            case UInt8(ascii: ":"): colon
            default: false
            }
        }
        guard let first = word.first, !(0x30...0x39).contains(first) else { return nil }
        rest.removeFirst(word.count)
        return String(decoding: word, as: UTF8.self)
    }

    private mutating func text(until isEnd: (UInt8) -> Bool) -> String? {
        let text = rest.prefix { !isEnd($0) }
        rest.removeFirst(text.count)
        return text.isEmpty ? nil : String(decoding: text, as: UTF8.self)
    }

    private mutating func consume(_ character: Unicode.Scalar) -> Bool {
        guard rest.first == UInt8(ascii: character) else { return false }
        rest.removeFirst()
        return true
    }

    private mutating func skipBlanks() {
        while let first = rest.first, first == 0x20 || first == 0x09 { rest.removeFirst() }
    }
}
