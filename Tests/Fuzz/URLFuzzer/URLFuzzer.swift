import NIOCore

@testable import CacheCore
@testable import ImageFetcher
@testable import Origins

/// Reads a URL named by a client, an `allow` entry, a URL template and a profile, one per line; the profile goes on to
/// the end. Nothing may trap, normalization is idempotent, and allowed URLs and expanded templates go to the configured
/// host only.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = UnsafeRawBufferPointer(start: start, count: count)
    let lines = bytes.split(separator: 0x0A, maxSplits: 3, omittingEmptySubsequences: false)
    func text(_ index: Int) -> String { index < lines.count ? String(decoding: lines[index], as: UTF8.self) : "" }

    let url = try? WebURL(text(0))
    if let url {
        precondition(url.string.utf8.count <= WebURL.longest, "a URL is too long")
        precondition((try? WebURL(url.string)) == url, "normalization of \(url.string) is not idempotent")
        precondition((try? WebURL(asCurl: text(0))) == url, "libcurl parses \(text(0)) differently")
        precondition((try? WebURL(asCurl: url.string)) == url, "libcurl parses \(url.string) differently")
    }
    if let url, let list = try? AllowList([text(1)]), let entry = try? WebURL(text(1)), (try? list.check(url)) != nil {
        precondition(url.authority == entry.authority, "\(entry.string) allows \(url.string)")
        precondition(url.path.hasPrefix(entry.path.hasSuffix("/") ? String(entry.path.dropLast()) : entry.path))
    }
    if let template = try? URLTemplate(text(2)) {
        let profile = OpaqueID(ByteBuffer(bytes: lines.count > 3 ? Array(lines[3].prefix(512)) : []))
        let sample = try? WebURL(template.filled(profile: OpaqueID("x"), user: OpaqueID("x"), size: 1))
        if let filled = try? template.filled(profile: profile, user: profile, size: 65_535) {
            guard let made = try? WebURL(filled) else { preconditionFailure("\(filled) is not a URL") }
            precondition(made.string == filled, "\(filled) is not normalized")
            precondition(
                sample.map { $0.authority == made.authority } ?? true, "the ids change the host to \(made.authority)")
            precondition(template.parse(filled).map { $0 == made } ?? true, "\(filled) is parsed differently")
        }
    }
    if let address = IPAddress(text(0)) {
        precondition(IPAddress("\(address)") == address, "\(address) is read as another address")
        _ = AddressGuard().refusal(of: address)
    }
    return 0
}
