import NIOCore
import Origins

/// The name under which a domain says who has the pictures of its addresses, over TLS. What Libravatar's clients ask
/// for besides, `_avatars._tcp`, is for http, and is not asked for.
enum ServiceName {
    static func of(_ domain: String) -> String { "_avatars-sec._tcp.\(domain)" }
}

/// A host that offers a service, as an SRV record has it (RFC 2782).
struct ServiceRecord: Hashable, Sendable {
    var priority: UInt16
    var weight: UInt16
    var port: UInt16
    /// Without the dot at its end; empty for "there is no such service".
    var host: String
}

extension [ServiceRecord] {
    /// The order in which the hosts are to be tried (RFC 2782): by priority, and among equals by chance, as often first
    /// as the weight says.
    /// - Parameter draw: gives a number of the range.
    func inOrder(draw: (ClosedRange<Int64>) -> Int64) -> [ServiceRecord] {
        var order: [ServiceRecord] = []
        for priority in Set(map(\.priority)).sorted() {
            // Those of weight 0 in front: they are drawn where 0 is, and hardly ever.
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

    /// Where a link's URL leads to at these hosts, whom a stranger's domain has named: at most ``mostHosts`` of them.
    /// - Parameter url: of the link, of which path and query stay.
    func urls(for url: WebURL, draw: (ClosedRange<Int64>) -> Int64) -> [WebURL] {
        let rest = url.string.dropFirst(url.authority.utf8.count)
        let hosts = inOrder(draw: draw).compactMap(\.base).prefix(Self.mostHosts)
        return hosts.map { WebURL(at: $0, rest) }
    }

    /// Hosts that one download tries at most.
    static var mostHosts: Int { 3 }
}

extension ServiceRecord {
    /// The host over https; nil for what is no name of a host, or of one in DNS, and where ``WebURL/hasOpenPort`` is not.
    fileprivate var base: WebURL? {
        let url: WebURL
        do { url = try WebURL("https://\(host):\(port)") } catch { return nil }
        // A label may hold what ends a host in a URL.
        let isWhole = url.host == host.lowercased() && url.port == port
        guard isWhole, url.hasOpenPort, url.address == nil, url.host.contains(".") else { return nil }
        return MailDomain.isInDNS(url.host) ? url : nil
    }
}

extension WebURL {
    /// Whether a stranger may choose the port: https's own, or one from 1024 on. The others are other services', which
    /// are not to be called by whoever writes a record, or answers with a redirect.
    var hasOpenPort: Bool { port == 443 || port >= 1024 }
}

/// What came of asking for a domain's records.
enum ServiceAnswer: Equatable, Sendable {
    /// Good for so many seconds; -1 where the answer does not say. None: the domain has no such service.
    case records([ServiceRecord], seconds: Int)
    case failed(String)
    /// There are too many look-ups already, or no descriptors: nothing was asked.
    case busy(String)
}

/// What DNS has said, for as long as it is good. A value; what fails is not kept, for that is the breakers' matter.
struct ServiceAnswers {
    /// Domains whose answers are kept.
    static let most = 1_024
    /// Seconds that an answer is good for, whatever it says.
    static let recordsFor = 60...86_400
    /// The same of "there is none", which somebody may be about to change.
    static let noneFor = 60...3_600

    private struct Entry {
        let records: [ServiceRecord]
        let until: NIODeadline
        /// Whose request brought it.
        let uid: UInt32
    }

    private var entries: [String: Entry] = [:]

    var count: Int { entries.count }

    /// Empty where there are none; nil where it is not known.
    func records(of domain: String, at now: NIODeadline) -> [ServiceRecord]? {
        guard let entry = entries[domain], entry.until > now else { return nil }
        return entry.records
    }

    /// What makes room is out of date, or of the uid that has most (I8).
    mutating func keep(
        _ records: [ServiceRecord], of domain: String, for seconds: Int, uid: UInt32, at now: NIODeadline
    ) {
        let bounds = records.isEmpty ? Self.noneFor : Self.recordsFor
        if entries[domain] == nil, entries.count >= Self.most { makeRoom(at: now) }
        let kept = min(max(seconds, bounds.lowerBound), bounds.upperBound)
        entries[domain] = Entry(records: records, until: now + .seconds(Int64(kept)), uid: uid)
    }

    private mutating func makeRoom(at now: NIODeadline) {
        entries = entries.filter { $0.value.until > now }
        guard entries.count >= Self.most else { return }
        let most = Dictionary(grouping: entries, by: \.value.uid).values.max { $0.count < $1.count }
        if let first = most?.min(by: { $0.value.until < $1.value.until }) { entries[first.key] = nil }
    }
}
