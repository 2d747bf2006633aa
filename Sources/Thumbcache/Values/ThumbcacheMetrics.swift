/// What METRICS says: figures with names and labels, read from Prometheus's text format.
/// https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
public struct ThumbcacheMetrics: Sendable {
    /// One figure.
    public struct Sample: Sendable, Hashable {
        /// As in the text, `thumbcached_` at its front and, of a histogram, `_bucket`, `_sum` or `_count` behind it.
        public let name: String
        /// By name.
        public let labels: [String: String]
        /// A counter or gauge.
        public let value: Double
    }

    /// In the order of the text.
    public let samples: [Sample]
    private let places: [String: [Int]]

    /// Far more than a daemon says: a histogram has some 150 samples, an origin some 30.
    static let mostBytes = 8 << 20
    static let mostSamples = 100_000
    static let mostLabels = 16

    /// Reads the text; comments and times are passed over.
    /// - Throws: ``ThumbcacheError/protocolViolation(_:)`` for what is not in the format, or far too much of it.
    public init(_ text: String) throws(ThumbcacheError) {
        guard text.utf8.count <= Self.mostBytes else {
            throw .protocolViolation("METRICS of more than \(Self.mostBytes) bytes")
        }
        var samples: [Sample] = []
        var number = 0
        for line in text.utf8.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false) {
            number += 1
            var scanner = MetricScanner(line)
            guard !scanner.isComment else { continue }
            guard let sample = scanner.sample() else {
                throw .protocolViolation("line \(number) of METRICS is not in Prometheus's text format")
            }
            guard samples.count < Self.mostSamples else {
                throw .protocolViolation("METRICS of more than \(Self.mostSamples) samples")
            }
            samples.append(sample)
        }
        self.samples = samples
        places = Dictionary(grouping: samples.indices) { samples[$0].name }
    }

    /// The figure with this name and exactly these labels; nil where there is none.
    public subscript(name: String, labels: [String: String] = [:]) -> Double? {
        places[name]?.lazy.map { samples[$0] }.first { $0.labels == labels }?.value
    }

    /// All figures of a name, in the order of the text, that have at least these labels.
    public func samples(of name: String, having labels: [String: String] = [:]) -> [Sample] {
        (places[name] ?? []).lazy.map { samples[$0] }.filter { sample in
            labels.allSatisfy { sample.labels[$0.key] == $0.value }
        }
    }

    /// Their sum; nil where there is none of them.
    public func sum(of name: String, having labels: [String: String] = [:]) -> Double? {
        let found = samples(of: name, having: labels)
        return found.isEmpty ? nil : found.reduce(0) { $0 + $1.value }
    }
}

/// One line of the format.
private struct MetricScanner {
    private var rest: Substring.UTF8View

    init(_ line: Substring.UTF8View) {
        rest = line
        if rest.last == UInt8(ascii: "\r") { rest.removeLast() }
        skipBlanks()
    }

    /// Or nothing at all.
    var isComment: Bool { rest.isEmpty || rest.first == UInt8(ascii: "#") }

    mutating func sample() -> ThumbcacheMetrics.Sample? {
        guard let name = word(colon: true) else { return nil }
        guard let labels = labels() else { return nil }
        skipBlanks()
        guard let value = number() else { return nil }
        skipBlanks()
        // Milliseconds since 1970.
        if !rest.isEmpty {
            guard let time = text(until: { $0 == 0x20 || $0 == 0x09 }), Int64(time) != nil else { return nil }
            skipBlanks()
        }
        return rest.isEmpty ? ThumbcacheMetrics.Sample(name: name, labels: labels, value: value) : nil
    }

    private mutating func labels() -> [String: String]? {
        skipBlanks()
        guard take("{") else { return [:] }
        var labels: [String: String] = [:]
        while true {
            skipBlanks()
            if take("}") { return labels }
            guard labels.count < ThumbcacheMetrics.mostLabels, let name = word(colon: false) else { return nil }
            skipBlanks()
            guard take("=") else { return nil }
            skipBlanks()
            guard let value = quoted(), labels.updateValue(value, forKey: name) == nil else { return nil }
            skipBlanks()
            if !take(",") { return take("}") ? labels : nil }
        }
    }

    private mutating func quoted() -> String? {
        guard take("\"") else { return nil }
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
            // Double reads more than the format has: hexadecimals and words.
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

    private mutating func take(_ character: Unicode.Scalar) -> Bool {
        guard rest.first == UInt8(ascii: character) else { return false }
        rest.removeFirst()
        return true
    }

    private mutating func skipBlanks() {
        while let first = rest.first, first == 0x20 || first == 0x09 { rest.removeFirst() }
    }
}
