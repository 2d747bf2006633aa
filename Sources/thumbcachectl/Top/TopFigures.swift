@_spi(Wire) import Thumbcache

/// Statistics at one time: of the whole daemon for admins, or else what INFO reports to a user.
struct TopFigures: Sendable {
    /// Seconds of a monotonic clock.
    var time: Double
    /// Values by metric name, with label values appended as in `hits_total/disk`.
    var values: [String: Double] = [:]
    /// Cumulative latency histogram since the start, by source: the number of requests within each bound in seconds.
    var latencies: [String: [(bound: Double, count: Double)]] = [:]
    var version = ""
    var isAdmin = false
    /// Failed origins, with the seconds until the next attempt.
    var origins: [(name: String, retry: Double)] = []
    var originNames: [String] = []

    /// The sources that count as hits, and those that count as misses.
    static let hits = ["memory", "disk", "put"]
    static let misses = ["origin", "revalidated", "fallback", "none", "error"]

    subscript(name: String) -> Double? { values[name] }

    init(time: Double) { self.time = time }

    init(_ metrics: ThumbcacheMetrics, time: Double) {
        self.time = time
        isAdmin = true
        for sample in metrics.samples where sample.name.hasPrefix("thumbcached_") {
            let name = String(sample.name.dropFirst("thumbcached_".count))
            switch name {
            case "build_info": version = sample.labels["version"] ?? ""
            case "request_duration_seconds_bucket":
                guard let source = sample.labels["source"], let bound = sample.labels["le"] else { continue }
                latencies[source, default: []].append(
                    (bound == "+Inf" ? .infinity : Double(bound) ?? .nan, sample.value))
            case "origin_retry_seconds":
                if sample.value > 0 { origins.append((sample.labels["origin"] ?? "", sample.value)) }
            case "origin_requests_total", "origin_received_bytes_total":
                let origin = sample.labels["origin"] ?? ""
                if name == "origin_requests_total" { originNames.append(origin) }
                values["\(name)/\(origin)"] = sample.value
            case let name where name.hasPrefix("origin_") || name.hasPrefix("request_duration_"): continue
            default:
                let labels = sample.labels.sorted { $0.key < $1.key }.map(\.value)
                values[([name] + labels).joined(separator: "/")] = sample.value
            }
        }
    }

    init(info: String, time: Double) {
        self.time = time
        let names = [
            "uptime_in_seconds": "uptime_seconds", "hits_memory": "hits_total/memory",
            "breakers_open_host": "breakers_open/host", "connected_clients": "connections",
        ]
        for line in info.split(whereSeparator: \.isNewline) {
            guard let colon = line.firstIndex(of: ":") else { continue }
            let (key, value) = (String(line[..<colon]), line[line.index(after: colon)...])
            if key == "thumbcached_version" { version = String(value) }
            values[names[key] ?? key] = Double(value)
            if key.hasPrefix("origin_"), value.hasPrefix("retry_in_ms="), let wait = Double(value.dropFirst(12)),
                wait > 0
            {
                origins.append((String(key.dropFirst("origin_".count)), (wait / 1_000).rounded(.up)))
            }
        }
    }

    /// A counter's growth per second; nil if unknown and after a restart.
    func rate(_ name: String, since before: TopFigures?) -> Double? {
        guard let before, time > before.time, let now = self[name], let then = before[name], now >= then else {
            return nil
        }
        return (now - then) / (time - before.time)
    }

    func requests(_ source: String) -> Double? { latencies[source]?.last?.count }

    /// The requests since an earlier time; nil if unknown and after a restart.
    func requests(_ sources: [String], since before: TopFigures?) -> Double? {
        guard let before else { return nil }
        let grown = sources.compactMap { source -> Double? in
            guard let now = requests(source), let then = before.requests(source), now >= then else { return nil }
            return now - then
        }
        return grown.isEmpty ? nil : grown.reduce(0, +)
    }

    /// The latency quantile of the requests since an earlier time, in seconds; nil without requests.
    func latency(_ source: String, part: Double, since before: TopFigures?) -> Double? {
        guard let before, let now = latencies[source], let then = before.latencies[source], now.count == then.count
        else { return nil }
        let counts = zip(now, then).map { (bound: $0.bound, count: $0.count - $1.count) }
        guard let total = counts.last?.count, total > 0 else { return nil }
        return counts.first { $0.count >= total * part }?.bound
    }

    /// The hit rate, 0 to 1, since an earlier time, or since the start; nil if unknown.
    func hitRate(since before: TopFigures? = nil) -> Double? {
        let start = before ?? TopFigures(startOf: self)
        guard let hits = requests(Self.hits, since: start), let misses = requests(Self.misses, since: start)
        else { return nil }
        // Not a number without requests.
        let rate = hits / (hits + misses)
        return 0...1 ~= rate ? rate : nil
    }

    /// All counters at 0, as at the daemon's start.
    private init(startOf now: TopFigures) {
        time = 0
        latencies = now.latencies.mapValues { counts in counts.map { ($0.bound, 0) } }
    }
}

extension TopFigures {
    static let parts = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)]
    /// A further quantile for wide terminals.
    static let tail = ("p99.9", 0.999)

    func json(since before: TopFigures?) -> String {
        func number(_ value: Double?) -> JSON { value.map(JSON.number) ?? .null }
        let names = values.keys.sorted()
        let counters = names.filter { $0.contains("_total") }
        let requests = (Self.hits + Self.misses).filter { latencies[$0] != nil }.map { source in
            let rate = self.requests([source], since: before).map { $0 / (time - (before?.time ?? 0)) }
            let latencies = Self.parts.map { ($0, number(latency(source, part: $1, since: before))) }
            return (
                source,
                JSON.object([("total", number(self.requests(source))), ("per-second", number(rate))] + latencies)
            )
        }
        return JSON.object([
            ("time", .string(Times.Moment.now.utc)), ("version", .string(version)), ("admin", .bool(isAdmin)),
            ("requests", .object(requests)), ("hit-rate", number(hitRate(since: before))),
            ("figures", .object(names.map { ($0, number(values[$0])) })),
            ("per-second", .object(counters.map { ($0, number(rate($0, since: before))) })),
            ("origins-failed", .object(origins.map { ($0.name, .number($0.retry)) })),
        ]).text
    }
}
