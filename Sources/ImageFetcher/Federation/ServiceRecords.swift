import NIOCore
import Origins

/// The DNS name under which a domain names its Libravatar servers for https.
enum ServiceName {
    static func of(_ domain: String) -> String { "_avatars-sec._tcp.\(domain)" }
}

/// An SRV record (RFC 2782).
struct ServiceRecord: Hashable, Sendable {
    var priority: UInt16
    var weight: UInt16
    var port: UInt16
    /// Without the final dot; empty if there is no such service.
    var host: String
}

extension [ServiceRecord] {
    /// The records in the order in which to try them (RFC 2782): by priority, then at random in proportion to weight.
    func inOrder(draw: (ClosedRange<Int64>) -> Int64) -> [ServiceRecord] {
        var order: [ServiceRecord] = []
        for priority in Set(map(\.priority)).sorted() {
            // Records of weight 0 come first, so that they are selected only if 0 is drawn.
            let all = filter { $0.priority == priority }
            var rest = all.filter { $0.weight == 0 } + all.filter { $0.weight > 0 }
            while !rest.isEmpty {
                var left = draw(0...rest.reduce(0) { $0 + Int64($1.weight) })
                let index = rest.firstIndex { record in
                    left -= Int64(record.weight)
                    return left <= 0
                }
                order.append(rest.remove(at: index ?? rest.count - 1))
            }
        }
        return order
    }

    /// The URL, with its path and query, at each of these hosts, at most ``maximumHosts``.
    func urls(for url: WebURL, draw: (ClosedRange<Int64>) -> Int64) -> [WebURL] {
        let rest = url.string.dropFirst(url.authority.utf8.count)
        let hosts = inOrder(draw: draw).compactMap(\.base).prefix(Self.maximumHosts)
        return hosts.map { WebURL(at: $0, rest) }
    }

    /// Maximum number of hosts that one download tries.
    static var maximumHosts: Int { 3 }
}

extension ServiceRecord {
    /// The host with https; nil if it is not a host name in DNS, or the port is not permitted (``WebURL/hasOpenPort``).
    fileprivate var base: WebURL? {
        let url: WebURL
        do { url = try WebURL("https://\(host):\(port)") } catch { return nil }
        // A DNS label may contain characters that end the host in a URL.
        let isWhole = url.host == host.lowercased() && url.port == port
        guard isWhole, url.hasOpenPort, url.address == nil, url.host.contains(".") else { return nil }
        return MailDomain.isInDNS(url.host) ? url : nil
    }
}

extension WebURL {
    /// Whether a foreign domain may choose the port: 443, or 1024 and above. It could reach other services with an SRV
    /// record or a redirect.
    var hasOpenPort: Bool { port == 443 || port >= 1024 }
}

/// The result of an SRV lookup.
enum ServiceResponse: Equatable, Sendable {
    /// Valid for so many seconds; -1 if the response does not state it. An empty list means that there is no service.
    case records([ServiceRecord], seconds: Int)
    case failed(String)
    /// Nothing was sent: too many lookups, or no descriptors.
    case busy(String)
}

/// A cache of SRV records. A value. Failures are not stored, because the circuit breakers handle them.
struct ServiceCache {
    static let maximumEntries = 1_024
    /// Bounds of the time to live of records, in seconds.
    static let recordsFor = 60...86_400
    /// Bounds of the time to live of empty responses, in seconds.
    static let noneFor = 60...3_600

    private struct Entry {
        let records: [ServiceRecord]
        let until: NIODeadline
        let account: UInt32
    }

    private var entries: [String: Entry] = [:]

    var count: Int { entries.count }

    /// Empty if the domain has no service; nil if the cache has no valid entry.
    func records(of domain: String, at now: NIODeadline) -> [ServiceRecord]? {
        guard let entry = entries[domain], entry.until > now else { return nil }
        return entry.records
    }

    /// Inserts records. If the cache is full, expired entries are removed, else one of the account with the most (I8).
    mutating func insert(
        _ records: [ServiceRecord], of domain: String, for seconds: Int, account: UInt32, at now: NIODeadline
    ) {
        let bounds = records.isEmpty ? Self.noneFor : Self.recordsFor
        if entries[domain] == nil, entries.count >= Self.maximumEntries { makeRoom(at: now) }
        let kept = min(max(seconds, bounds.lowerBound), bounds.upperBound)
        entries[domain] = Entry(records: records, until: now + .seconds(Int64(kept)), account: account)
    }

    private mutating func makeRoom(at now: NIODeadline) {
        entries = entries.filter { $0.value.until > now }
        guard entries.count >= Self.maximumEntries else { return }
        let most = Dictionary(grouping: entries, by: \.value.account).values.max { $0.count < $1.count }
        if let first = most?.min(by: { $0.value.until < $1.value.until }) { entries[first.key] = nil }
    }
}
