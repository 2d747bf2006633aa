/// The text of `top`, computed from statistics and the terminal's size.
struct TopScreen {
    struct Line: Equatable {
        var text: String
        var style: Terminal.Style?
    }

    /// One row: its name and fields, the most important first.
    private struct Row {
        var name: String
        var fields: [String]
        var isAlarm = false
        var isTable = false
        /// If there is no room, rows with the highest weight are removed first.
        var weight: Int
    }

    let now: TopFigures
    let before: TopFigures?
    /// The time of day.
    let clock: String
    /// The error of the last query; nil if the statistics are current.
    var trouble: String?

    private static let nameWidth = 12
    private static let cellWidth = 11

    /// Returns at most `size.rows` lines of at most `size.columns` characters.
    func lines(_ size: Terminal.Size) -> [Line] {
        var lines = [Line(text: header(size), style: .bold)]
        if let trouble { lines.append(Line(text: fitted(trouble, size), style: .red)) }
        var rows = self.rows
        while lines.count + rows.count > size.rows,
            let last = rows.indices.reversed().max(by: { rows[$0].weight < rows[$1].weight })
        {
            rows.remove(at: last)
        }
        lines += rows.map { row in
            let isHead = row.isTable && row.weight == 1
            return Line(text: fitted(text(of: row, size), size), style: row.isAlarm ? .red : isHead ? .faint : nil)
        }
        return Array(lines.prefix(size.rows))
    }

    private func header(_ size: Terminal.Size) -> String {
        let uptime = now["uptime_seconds"].map { "   up \(Times.duration($0))" } ?? ""
        let left = "thumbcached \(PlainText.escape(now.version))\(uptime)"
        let gap = size.columns - left.count - clock.count
        return gap < 2 ? fitted(left, size) : left + String(repeating: " ", count: gap) + clock
    }

    private func text(of row: Row, _ size: Terminal.Size) -> String {
        var text = padded(row.name, Self.nameWidth)
        for (index, field) in row.fields.enumerated() {
            // A name wider than its column takes room of the first cell.
            let width = Self.cellWidth - (index == 0 ? text.count - Self.nameWidth : 0)
            let gap = row.isTable ? max(1, width - field.count) : index == 0 ? 0 : 3
            guard text.count + gap + field.count <= size.columns else { break }
            text += String(repeating: " ", count: gap) + field
        }
        return text
    }

    private var rows: [Row] {
        (now.isAdmin ? table : []) + [blank, hitRate] + (now.isAdmin ? [downloads] + renditions : []) + [
            memory, disk, clients, caches, breakers,
        ]
            + (now.isAdmin ? further : []) + failedOrigins
    }

    private var blank: Row { Row(name: "", fields: [], weight: 9) }

    // MARK: Requests

    private static var parts: [(String, Double)] { TopFigures.parts + [TopFigures.tail] }

    /// Requests by source of the image. Sources without requests are shown only if there is room.
    private var table: [Row] {
        let head = Row(
            name: "requests", fields: ["per second", "total"] + Self.parts.map(\.0), isTable: true, weight: 1)
        let always = ["memory", "disk", "origin"]
        let sources = (TopFigures.hits + TopFigures.misses).filter {
            now.latencies[$0] != nil
        }
        return [blank, head]
            + sources.map { source in
                let latencies = Self.parts.map { _, part in
                    now.latency(source, part: part, since: before).map(Self.bound) ?? "-"
                }
                return Row(
                    name: "  \(source)",
                    fields: [rate(of: source), now.requests(source).map(Self.count) ?? "-"] + latencies,
                    isTable: true,
                    weight: always.contains(source) ? 2 : now.requests(source) ?? 0 > 0 ? 6 : 12)
            }
    }

    private func rate(of source: String) -> String {
        guard let before, let count = now.requests([source], since: before), now.time > before.time else { return "-" }
        return Self.count(count / (now.time - before.time))
    }

    private var hitRate: Row {
        guard now.isAdmin else {
            return Row(name: "hits", fields: ["\(per("hits_total/memory")) in memory"], weight: 1)
        }
        let (last, all) = (now.hitRate(since: before), now.hitRate())
        return Row(
            name: "hits",
            fields: [
                "\(before == nil ? "-" : last.map(Self.percent) ?? "-") now", "\(all.map(Self.percent) ?? "-") total",
                "\(per("stale_served_total")) stale",
            ], weight: 1)
    }

    private var downloads: Row {
        let failures = now.rate("download_failures_total", since: before) ?? 0
        return Row(
            name: "downloads",
            fields: [
                "\(figure("downloads_in_flight")) in flight", "\(figure("downloads_queued")) queued",
                "\(per("downloads_total")) started", "\(per("download_failures_total")) failed",
                "\(figure("unwritten_images")) unwritten",
            ], isAlarm: failures > 0,
            weight: failures > 0 ? 1 : 3)
    }

    /// Shown after the first rendition.
    private var renditions: [Row] {
        guard (now["renditions_total"] ?? 0) + (now["rendition_failures_total"] ?? 0) > 0 else { return [] }
        let failures = now.rate("rendition_failures_total", since: before) ?? 0
        return [
            Row(
                name: "renditions",
                fields: ["\(per("renditions_total")) made", "\(per("rendition_failures_total")) failed"],
                isAlarm: failures > 0, weight: failures > 0 ? 1 : 5)
        ]
    }

    private var memory: Row {
        let capacity = now["memory_tier_capacity_bytes"].map(Self.bytes) ?? "-"
        let tier = now["memory_tier_bytes"].map { "tier \(Self.bytes($0)) of \(capacity)" } ?? "tier up to \(capacity)"
        return Row(
            name: "memory",
            fields: (now["resident_memory_bytes"].map { [Self.bytes($0) + " resident"] } ?? [])
                + [tier, "\(now["held_bytes"].map(Self.bytes) ?? "-") buffered for clients"], weight: 4)
    }

    private var disk: Row {
        let counting = now["store_counted"] == 0 ? ["still counting"] : []
        return Row(
            name: "disk",
            fields: ["\(figure("stored_images")) images", now["stored_bytes"].map(Self.bytes) ?? "-"] + counting
                + (now["trash_bytes"].map { ["\(Self.bytes($0)) trash"] } ?? [])
                + (now.isAdmin ? ["\(per("evicted_images_total")) evicted"] : []), weight: 4)
    }

    private var clients: Row {
        Row(
            name: "clients",
            fields: ["\(figure("connections")) connected"]
                + (now.isAdmin
                    ? ["\(per("connections_accepted_total")) accepted", "\(per("connections_refused_total")) refused"]
                    : []),
            weight: 5)
    }

    private var caches: Row {
        let pending = now["invalidations_pending"] ?? 0
        let logouts = ["\(Self.count(pending)) invalidations pending", "\(per("logouts_total")) logouts"]
        return Row(
            name: "caches", fields: ["\(figure("open_caches")) open"] + (now.isAdmin ? logouts : []),
            isAlarm: pending > 0, weight: pending > 0 ? 1 : 5)
    }

    private var breakers: Row {
        let open = (now["breakers_open/host"] ?? 0) + (now["breakers_open/account"] ?? 0)
        return Row(
            name: "breakers",
            fields: ["\(figure("breakers_open/host")) hosts open"]
                + (now.isAdmin ? ["\(figure("breakers_open/account")) accounts open"] : []), isAlarm: open > 0,
            weight: open > 0 ? 1 : 3)
    }

    /// Further rows for large terminals. Metrics that the daemon does not report are omitted.
    private var further: [Row] {
        func row(_ name: String, _ fields: [(counter: String, what: String)]) -> Row? {
            let known = fields.filter { now[$0.counter] != nil }
            guard !known.isEmpty else { return nil }
            return Row(name: name, fields: known.map { "\(per($0.counter)) \($0.what)" }, weight: 11)
        }
        let rows = [
            row(
                "users",
                [
                    ("logins_total", "logins"), ("purges_total", "purges"),
                    ("token_refreshes_total/succeeded", "tokens refreshed"),
                    ("token_refreshes_total/failed", "token refreshes failed"),
                ]),
            row(
                "writes",
                [
                    ("puts_total", "PUTs"), ("store_failures_total", "failed"), ("stores_skipped_total", "skipped"),
                    ("rejected_entries_total", "damaged entries"), ("failed_reads_total", "failed reads"),
                ]),
            row("events", [("events_total", "sent"), ("subscribers_dropped_total", "subscribers dropped")]),
        ]
        let origins = now.originNames.sorted().map { origin in
            let received = now.rate("origin_received_bytes_total/\(origin)", since: before).map(Self.bytes) ?? "-"
            return Row(
                name: "origin",
                fields: [
                    PlainText.escape(origin), "\(per("origin_requests_total/\(origin)")) requests",
                    "\(received)/s received",
                ], weight: 10)
        }
        return rows.compactMap { $0 } + origins
    }

    private var failedOrigins: [Row] {
        now.origins.map { origin in
            let wait = Times.duration(origin.retry)
            return Row(
                name: "origin", fields: ["\(PlainText.escape(origin.name)) failed; next attempt in \(wait)"],
                isAlarm: true, weight: 7)
        }
    }

    private func figure(_ name: String) -> String { now[name].map(Self.count) ?? "-" }

    private func per(_ name: String) -> String { (now.rate(name, since: before).map(Self.count) ?? "-") + "/s" }
}

extension TopScreen {
    /// At least two digits, with k or M from 10,000 on.
    static func count(_ value: Double) -> String {
        switch value {
        // A decimal place only if it is not 0.
        case 0..<10 where (value - value.rounded()).magnitude >= 0.05: decimal(value)
        case 0..<10_000: "\(Int(value.rounded()))"
        case 10_000..<10_000_000: "\(Int((value / 1_000).rounded()))k"
        case 10_000_000..<1e15: "\(Int((value / 1_000_000).rounded()))M"
        default: "-"
        }
    }

    static func bytes(_ value: Double) -> String {
        guard value >= 0, value < 1e18 else { return "-" }
        var (value, units) = (value, ["B", "KiB", "MiB", "GiB", "TiB"][...])
        while value >= 1_000, units.count > 1 {
            value /= 1_024
            units.removeFirst()
        }
        let number = value < 10 && value != value.rounded() ? decimal(value) : "\(Int(value.rounded()))"
        return "\(number) \(units.first ?? "")"
    }

    static func seconds(_ value: Double) -> String {
        switch value {
        case .infinity: "> 10 s"
        case 0..<0.001: "\(Int((value * 1e6).rounded())) us"
        case 0.001..<1: "\(short(value * 1e3)) ms"
        case 1..<1e6: "\(short(value)) s"
        default: "-"
        }
    }

    /// The upper bound of a histogram bucket.
    static func bound(_ value: Double) -> String { value == .infinity ? seconds(value) : "≤ \(seconds(value))" }

    static func percent(_ part: Double) -> String { decimal(part * 100) + " %" }

    private static func decimal(_ value: Double) -> String {
        let tenths = Int((value * 10).rounded())
        return "\(tenths / 10).\(tenths % 10)"
    }

    private static func short(_ value: Double) -> String {
        value == value.rounded() ? "\(Int(value))" : decimal(value)
    }
}

private func fitted(_ text: String, _ size: Terminal.Size) -> String {
    var text = text.prefix(size.columns)
    while text.last == " " { text.removeLast() }
    return String(text)
}
