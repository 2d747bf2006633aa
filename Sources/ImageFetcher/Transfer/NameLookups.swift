import CCurl
import CacheCore
import DequeModule
import NIOCore

/// Limits the number of name lookups in flight: in total, per account and per origin.
///
/// libcurl resolves each name on a thread of its own. A cancelled request does not wait for that thread
/// (CURLOPT_QUICK_EXIT), whose end libcurl does not report. A name server that never responds would cause ever more
/// threads, so an abandoned lookup counts for as long as a resolver takes at most. Used on the fetcher's thread only.
final class NameLookups {
    struct Limits {
        var all: Int
        var perAccount: Int
    }

    struct Client {
        let account: UInt32
        let origin: String
        /// Maximum number of concurrent lookups for the origin.
        let maximum: Int
    }

    /// The longest time of a resolver with its defaults: two attempts at three name servers, 5 s each (resolv.conf(5)).
    static let longest = TimeAmount.seconds(30)

    var limits: Limits
    private var all = AccountCounts()
    private var perOrigin: [String: AccountCounts] = [:]
    /// The lookups of cancelled requests, in the order in which they expire.
    fileprivate var abandoned: Deque<(client: Client, until: NIODeadline)> = []
    fileprivate let now: () -> NIODeadline

    init(limits: Limits, now: @escaping () -> NIODeadline = { .now() }) {
        self.limits = limits
        self.now = now
    }

    /// Includes abandoned lookups.
    var count: Int { all.total }

    fileprivate func begin(_ client: Client) -> Bool {
        let now = now()
        while let first = abandoned.first, first.until <= now {
            abandoned.removeFirst()
            end(first.client)
        }
        guard all.hasRoom(for: client.account, of: limits.all), all.count(of: client.account) < limits.perAccount,
            perOrigin[client.origin, default: .init()].hasRoom(for: client.account, of: client.maximum)
        else { return false }
        all.add(client.account)
        perOrigin[client.origin, default: .init()].add(client.account)
        return true
    }

    fileprivate func end(_ client: Client) {
        all.remove(client.account)
        perOrigin[client.origin]?.remove(client.account)
        if perOrigin[client.origin]?.total == 0 { perOrigin[client.origin] = nil }
    }
}

extension TransferJob {
    var lookupClient: NameLookups.Client {
        NameLookups.Client(
            account: account, origin: origin.name, maximum: origin.connections + TokenTransfer.maximumPerOrigin)
    }
}

/// The name lookup of one request, if it needs one. It is abandoned if the request is released first.
final class NameLookup {
    private let all: NameLookups
    private let client: NameLookups.Client
    private var isInFlight = false
    /// Whether a limit prevented it.
    private(set) var isRefused = false

    init(of client: NameLookups.Client, among all: NameLookups) {
        self.client = client
        self.all = all
    }

    deinit {
        if isInFlight { all.abandoned.append((client, all.now() + NameLookups.longest)) }
    }

    func begin() -> Bool {
        guard !isInFlight else { return true }
        isInFlight = all.begin(client)
        isRefused = !isInFlight
        return isInFlight
    }

    /// Ends the lookup: the resolver has returned.
    func end() {
        if isInFlight { all.end(client) }
        isInFlight = false
    }

    /// Makes libcurl call ``begin()`` before it resolves a name. The lookup must outlive the handle's request.
    func attach(to easy: EasyHandle) throws(FetchFailure) {
        try easy.check(
            CURLOPT_RESOLVER_START_FUNCTION,
            ccurl_easy_set_resolver_start_function(easy.raw) { _, _, context in
                guard let context else { return 1 }
                return Unmanaged<NameLookup>.fromOpaque(context).takeUnretainedValue().begin() ? 0 : 1
            })
        try easy.set(CURLOPT_RESOLVER_START_DATA, pointer: Unmanaged.passUnretained(self).toOpaque())
    }

    static let refusal = "too many name lookups are in flight; try again later"
}
