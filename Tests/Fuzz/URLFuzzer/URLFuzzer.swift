import NIOCore

@testable import CacheCore
@testable import ImageFetcher
@testable import Origins

/// Takes four lines for a URL that a client names, an `allow` entry, an origin's template and a profile, which goes on
/// to the end. Nothing may trap; the one form of a URL is its own one form; what an entry allows, or a template makes,
/// goes to the host that the configuration names and to no other.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = UnsafeRawBufferPointer(start: start, count: count)
    let lines = bytes.split(separator: 0x0A, maxSplits: 3, omittingEmptySubsequences: false)
    func text(_ index: Int) -> String { index < lines.count ? String(decoding: lines[index], as: UTF8.self) : "" }

    let url = try? WebURL(text(0))
    if let url {
        precondition(url.string.utf8.count <= WebURL.longest, "a URL is too long")
        precondition((try? WebURL(url.string)) == url, "the one form of \(url.string) is another")
        precondition((try? WebURL(asCurl: text(0))) == url, "libcurl takes \(text(0)) apart otherwise")
        precondition((try? WebURL(asCurl: url.string)) == url, "libcurl takes \(url.string) apart otherwise")
    }
    if let url, let list = try? AllowList([text(1)]), let entry = try? WebURL(text(1)), (try? list.check(url)) != nil {
        precondition(url.authority == entry.authority, "\(entry.string) allows \(url.string)")
        precondition(url.path.hasPrefix(entry.path.hasSuffix("/") ? String(entry.path.dropLast()) : entry.path))
    }
    if let template = try? URLTemplate(text(2)) {
        let profile = OpaqueID(ByteBuffer(bytes: lines.count > 3 ? Array(lines[3].prefix(512)) : []))
        let sample = try? WebURL(template.filled(profile: OpaqueID("x"), user: OpaqueID("x"), size: 1))
        if let filled = try? template.filled(profile: profile, user: profile, size: 65_535) {
            guard let made = try? WebURL(filled) else { preconditionFailure("\(filled) is no URL") }
            precondition(made.string == filled, "\(filled) is not in the one form")
            precondition(sample.map { $0.authority == made.authority } ?? true, "the ids lead to \(made.authority)")
            precondition(template.takenApart(filled).map { $0 == made } ?? true, "\(filled) is taken apart otherwise")
        }
    }
    if let address = IPAddress(text(0)) {
        precondition(IPAddress("\(address)") == address, "\(address) is read as another address")
        _ = AddressGuard().refusal(of: address)
    }
    return 0
}
