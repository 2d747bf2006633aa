import CacheCore
import Origins

/// The hosts that one download may use, once the address's domain has named them. A value.
struct FederatedHosts {
    /// The domain whose SRV records must be queried first; nil afterwards, and for targets without federation.
    private(set) var domainToQuery: String?
    /// Whether the domain chose the current host. Permissions of the upstream, such as private addresses and tokens,
    /// then do not apply to it or its redirects.
    private(set) var isFederated = false
    /// The hosts to try if the current one cannot be reached.
    private var rest: ArraySlice<WebURL> = []

    init(domain: String?) { domainToQuery = domain }

    /// Accepts the response of the domain's name server, and returns the URL to request first. A failed query does not
    /// fall back to the upstream's own host, which would report the image as missing without knowing.
    /// - Parameter url: the upstream's own.
    mutating func accept(
        _ response: ServiceResponse, for url: WebURL, draw: (ClosedRange<Int64>) -> Int64
    ) throws(FetchFailure) -> WebURL {
        domainToQuery = nil
        switch response {
        case .busy(let reason): throw .busy(reason)
        case .failed(let reason): throw .origin("SRV lookup for the address's domain failed: \(reason)")
        case .records(let records, _):
            guard !records.isEmpty else { return url }
            isFederated = true
            rest = records.urls(for: url, draw: draw)[...]
            guard let first = rest.popFirst() else {
                throw .denied("the SRV records of the address's domain name no permitted host")
            }
            return first
        }
    }

    /// Removes and returns the host to try instead of one that cannot be reached.
    mutating func popNext() -> WebURL? { rest.popFirst() }

    /// Discards the other hosts, because the current one has responded.
    mutating func discardRest() { rest = [] }
}
