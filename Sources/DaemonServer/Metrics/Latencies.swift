import CacheCore
import NIOCore
import Synchronization

/// How long requests for images took, by where the image came from: a histogram for each, and each event loop has its
/// own, so that loops do not fight over one line of the cache.
public final class Latencies: Sendable {
    enum Source: Int, CaseIterable, Sendable {
        case memory, disk, origin, revalidated, put, fallback
        /// There was none.
        case none
        case error

        /// Whether the image was held when it was asked for.
        var isHit: Bool { self == .memory || self == .disk }

        init(_ outcome: GetOutcome) {
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

    /// Upper bounds of the buckets but the last, in nanoseconds: from what a hit takes to what an origin may.
    static let bounds: [Int64] = [
        10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000, 25_000_000,
        50_000_000, 100_000_000, 250_000_000, 500_000_000, 1_000_000_000, 2_500_000_000, 5_000_000_000, 10_000_000_000,
    ]

    let recorders: [LatencyRecorder]

    /// - Parameter loops: event loops.
    public init(loops: Int) {
        recorders = (0..<loops).map { _ in LatencyRecorder() }
    }

    /// What METRICS says of them.
    public var family: MetricFamily {
        MetricFamily(
            "request_duration_seconds", .histogram,
            "Time from when a request for an image was read until its reply was handed to the kernel, by its source.",
            Source.allCases.flatMap { samples(of: $0) })
    }

    private func samples(of source: Source) -> [MetricFamily.Sample] {
        var total = 0
        var samples: [MetricFamily.Sample] = []
        for bucket in 0...Self.bounds.count {
            total += recorders.reduce(0) { $0 + $1.count(source, bucket) }
            let bound = bucket < Self.bounds.count ? Self.seconds(Self.bounds[bucket]) : "+Inf"
            samples.append(
                .init("_bucket", text: "\(total)", labels: [("source", "\(source)"), ("le", bound)]))
        }
        let sum = recorders.reduce(0) { $0 + $1.sum(source) }
        return samples + [
            .init("_sum", text: Self.seconds(Int64(sum)), labels: [("source", "\(source)")]),
            .init("_count", text: "\(total)", labels: [("source", "\(source)")]),
        ]
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

    /// - Parameter count: of requests that took this long.
    func record(_ source: Latencies.Source, _ time: TimeAmount, count: Int = 1) {
        let bucket = Latencies.bounds.firstIndex { time.nanoseconds <= $0 } ?? Latencies.bounds.count
        figures.addAlone(count, at: source.rawValue * Self.perSource + bucket)
        figures.addAlone(Int(time.nanoseconds) &* count, at: (source.rawValue + 1) * Self.perSource - 1)
    }

    func count(_ source: Latencies.Source, _ bucket: Int) -> Int { figures[source.rawValue * Self.perSource + bucket] }

    /// Nanoseconds.
    func sum(_ source: Latencies.Source) -> Int { figures[(source.rawValue + 1) * Self.perSource - 1] }
}
