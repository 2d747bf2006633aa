import NIOCore

@testable import ImageFetcher
@testable import Origins

/// F86: reads DNS responses of the name server of an address's domain. Nothing may trap; records are within bounds and
/// in order, and a download goes to a host name in DNS only, with the path and query of the upstream.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    // In a separate allocation, as from c-ares, so that reads past the end are detected.
    let bytes = Array(UnsafeRawBufferPointer(start: start, count: count))
    let response = bytes.withUnsafeBufferPointer { ServiceQuery.read($0.baseAddress, CInt($0.count)) }
    guard case .records(let records, let seconds) = response else { return 0 }
    precondition(records.count <= ServiceQuery.maximumRecords, "too many records")
    precondition(-1...Int(Int32.max) ~= seconds, "a time to live is out of range")
    precondition(records.map(\.priority) == records.map(\.priority).sorted(), "records are not in order")
    guard let upstream = try? WebURL("https://images.example.org/avatar/0?s=80") else { return 0 }
    var hosts = FederatedHosts(domain: "example.org")
    guard let first = try? hosts.accept(response, for: upstream, draw: { $0.upperBound }) else { return 0 }
    var next: WebURL? = first
    var used = 0
    while let url = next {
        precondition(url.scheme == .https && url.path == upstream.path && url.query == upstream.query)
        precondition((try? WebURL(url.string)) == url, "\(url.string) is parsed differently")
        precondition(
            url == upstream || records.contains { $0.host.lowercased() == url.host }, "\(url.host) is no record")
        precondition(url.address == nil && MailDomain.isInDNS(url.host), "\(url.host) is not in DNS")
        used += 1
        next = hosts.popNext()
    }
    precondition(used <= [ServiceRecord].maximumHosts, "too many hosts")
    return 0
}
