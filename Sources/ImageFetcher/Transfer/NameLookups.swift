import CCurl
import CacheCore
import DequeModule
import NIOCore

/// The names that are being looked up: how many, for whom, and for which origin.
///
/// libcurl looks each name up on a thread of its own. A request that is given up meanwhile does not wait for its thread
/// (CURLOPT_QUICK_EXIT), which goes on until the resolver does, and nobody is told of its end. A name server that never
/// answers would so make ever more threads. So a look-up that was given up counts on for as long as a resolver takes at
/// most, and there are no more at once than there may be requests: of an origin, of a uid, and in all.
///
/// Only the fetcher's thread touches it.
final class NameLookups {
    struct Limits {
        var all: Int
        var perUID: Int
    }

    /// Whom a look-up counts for.
    struct Asker {
        let uid: UInt32
        let origin: String
        /// Look-ups at once for the origin.
        let most: Int
    }

    /// How long a resolver takes at most by default: it asks three name servers twice, 5 s each (resolv.conf(5)).
    static let longest = TimeAmount.seconds(30)

    var limits: Limits
    private var all = UIDCounts()
    private var perOrigin: [String: UIDCounts] = [:]
    /// Those whose requests were given up, the first to be over first.
    fileprivate var givenUp: Deque<(asker: Asker, until: NIODeadline)> = []
    fileprivate let now: () -> NIODeadline

    init(limits: Limits, now: @escaping () -> NIODeadline = { .now() }) {
        self.limits = limits
        self.now = now
    }

    /// Those given up included.
    var count: Int { all.total }

    /// False where there is no room for another.
    fileprivate func begin(_ asker: Asker) -> Bool {
        let now = now()
        while let first = givenUp.first, first.until <= now {
            givenUp.removeFirst()
            end(first.asker)
        }
        guard all.hasRoom(for: asker.uid, of: limits.all), all.count(of: asker.uid) < limits.perUID,
            perOrigin[asker.origin, default: .init()].hasRoom(for: asker.uid, of: asker.most)
        else { return false }
        all.add(asker.uid)
        perOrigin[asker.origin, default: .init()].add(asker.uid)
        return true
    }

    fileprivate func end(_ asker: Asker) {
        all.remove(asker.uid)
        perOrigin[asker.origin]?.remove(asker.uid)
        if perOrigin[asker.origin]?.total == 0 { perOrigin[asker.origin] = nil }
    }
}

extension TransferJob {
    /// Whom its look-ups count for.
    var asker: NameLookups.Asker {
        NameLookups.Asker(
            uid: uid, origin: origin.name, most: origin.connections + TokenTransfer.mostAtOncePerOrigin)
    }
}

/// The look-up of one request, if it comes to one. When the request goes while it is under way, it is given up.
final class NameLookup {
    private let all: NameLookups
    private let asker: NameLookups.Asker
    private var isUnderWay = false
    /// Whether there was no room for it.
    private(set) var isRefused = false

    init(of asker: NameLookups.Asker, among all: NameLookups) {
        self.asker = asker
        self.all = all
    }

    deinit {
        if isUnderWay { all.givenUp.append((asker, all.now() + NameLookups.longest)) }
    }

    /// libcurl is about to look a name up. False where it must not.
    func begin() -> Bool {
        guard !isUnderWay else { return true }
        isUnderWay = all.begin(asker)
        isRefused = !isUnderWay
        return isUnderWay
    }

    /// The resolver has answered.
    func end() {
        if isUnderWay { all.end(asker) }
        isUnderWay = false
    }

    /// Has libcurl ask for leave before it looks a name up. This must outlive the handle's request.
    func attach(to easy: EasyHandle) throws(TransferFailure) {
        try easy.check(
            CURLOPT_RESOLVER_START_FUNCTION,
            ccurl_easy_set_resolver_start_function(easy.raw) { _, _, context in
                guard let context else { return 1 }
                return Unmanaged<NameLookup>.fromOpaque(context).takeUnretainedValue().begin() ? 0 : 1
            })
        try easy.set(CURLOPT_RESOLVER_START_DATA, pointer: Unmanaged.passUnretained(self).toOpaque())
    }

    static let refusal = "too many names are being looked up already: try again later"
}
