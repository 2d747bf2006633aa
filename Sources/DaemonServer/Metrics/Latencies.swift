import CacheCore
import NIOCore
import Synchronization

/// Histograms of the durations of image requests, by the source of the image. Each event loop has its own, so that
/// loops do not contend for one cache line.
public final class Latencies: Sendable {
    enum Source: Int, CaseIterable, Sendable {
        case memory, disk, origin, revalidated, put, fallback
        /// No image.
        case none
        case error

        var isHit: Bool { self == .memory || self == .disk }

        init(_ outcome: Result<ServedImage?, CacheFailure>) {
            switch outcome {
            case .failure: self = .error
            case .success(nil): self = .none
            case .success(let served?):
                switch served.source {
                case .memory: self = .memory
                case .disk: self = .disk
                case .origin: self = .origin
                case .revalidated: self = .revalidated
                case .put: self = .put
                case .fallback: self = .fallback
                }
            }
        }
    }

    /// Upper bounds of all buckets but the last, in nanoseconds: from a hit to a slow origin.
    static let bounds: [Int64] = [
        10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000, 25_000_000,
        50_000_000, 100_000_000, 250_000_000, 500_000_000, 1_000_000_000, 2_500_000_000, 5_000_000_000, 10_000_000_000,
    ]

    let recorders: [LatencyRecorder]

    public init(loops: Int) {
        recorders = (0..<loops).map { _ in LatencyRecorder() }
    }

    public var metric: Metric {
        Metric(
            "request_duration_seconds", .histogram, unit: "seconds",
            "Time from reading a request for an image to handing its reply to the kernel, by the source of the image.",
            Source.allCases.flatMap { self.samples(of: $0) }, infoFields: { [] })
    }

    private func samples(of source: Source) -> [Metric.Sample] {
        var total = 0
        var samples: [Metric.Sample] = []
        func add(_ suffix: String, _ value: String, _ labels: [(name: String, value: String)] = []) {
            samples.append(
                .init(suffix: suffix, text: value, labels: [("source", "\(source)")] + labels, visibility: .metrics))
        }
        for bucket in 0...Self.bounds.count {
            total += recorders.reduce(0) { $0 + $1.count(source, bucket) }
            let bound = bucket < Self.bounds.count ? Self.seconds(Self.bounds[bucket]) : "+Inf"
            add("_bucket", "\(total)", [("le", bound)])
        }
        add("_sum", Self.seconds(Int64(recorders.reduce(0) { $0 + $1.sum(source) })))
        add("_count", "\(total)")
        return samples
    }

    private static func seconds(_ nanoseconds: Int64) -> String { "\(Double(nanoseconds) / 1e9)" }
}

/// The histograms of one event loop. Written on the loop, read anywhere.
final class LatencyRecorder: Sendable {
    private let figures: AtomicCounts
    private static var perSource: Int { Latencies.bounds.count + 2 }

    init() {
        figures = AtomicCounts(Latencies.Source.allCases.count * Self.perSource)
    }

    func record(_ source: Latencies.Source, _ time: TimeAmount, count: Int = 1) {
        let bucket = Latencies.bounds.firstIndex { time.nanoseconds <= $0 } ?? Latencies.bounds.count
        figures.addAsOnlyWriter(count, at: source.rawValue * Self.perSource + bucket)
        figures.addAsOnlyWriter(Int(time.nanoseconds) &* count, at: (source.rawValue + 1) * Self.perSource - 1)
    }

    func count(_ source: Latencies.Source, _ bucket: Int) -> Int { figures[source.rawValue * Self.perSource + bucket] }

    /// Nanoseconds.
    func sum(_ source: Latencies.Source) -> Int { figures[(source.rawValue + 1) * Self.perSource - 1] }
}
