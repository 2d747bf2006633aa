import CacheCore
import Origins

/// Whom one download asks of those that a domain names: nobody yet, one after another, or the link's own host. A value.
struct FederatedHosts {
    /// To be asked, before anybody else is; nil afterwards, and where none is to be.
    private(set) var domainToAsk: String?
    /// Whether the domain, and so a stranger, has chosen the host and whatever that leads to: then nothing that the
    /// operator allows a link is allowed here.
    private(set) var areStrangers = false
    /// Those that are tried when the ones before cannot be reached.
    private var rest: ArraySlice<WebURL> = []

    init(domain: String?) { domainToAsk = domain }

    /// What the domain has said. Where it could not be asked, the link's own host is not asked either: it would say
    /// that there is no picture, which it does not know.
    /// - Parameter url: the link's own.
    /// - Returns: the URL that is asked first.
    mutating func take(
        _ answer: ServiceAnswer, for url: WebURL, draw: (ClosedRange<Int64>) -> Int64
    ) throws(TransferFailure) -> WebURL {
        domainToAsk = nil
        switch answer {
        case .busy(let reason): throw .busy(reason)
        case .failed(let reason): throw .origin("the address's domain does not say who has its pictures: \(reason)")
        case .records(let records, _):
            guard !records.isEmpty else { return url }
            areStrangers = true
            rest = records.urls(for: url, draw: draw)[...]
            guard let first = rest.popFirst() else {
                throw .denied("the address's domain names no host for its pictures that may be asked")
            }
            return first
        }
    }

    /// The host to try instead of one that cannot be reached.
    mutating func next() -> WebURL? { rest.popFirst() }

    /// The host that is asked has answered: no other is tried.
    mutating func settle() { rest = [] }
}
