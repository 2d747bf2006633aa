@testable import CacheCore
@testable import ImageFetcher

/// Parses header lines and a body from an untrusted origin and applies the freshness rules. Nothing may trap, no image
/// may exceed the limit, and all dates must be in range.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = UnsafeRawBufferPointer(start: start, count: count)
    let isConditional = bytes.first.map { $0 & 1 == 1 } ?? false
    let limits = ResponseReader.Limits(header: 4_096, value: 256, values: 4, discarded: 512, image: 1_024)
    var reader = ResponseReader(host: "h", isConditional: isConditional, framing: .bare, limits: limits)
    var rest = bytes[...]
    while reader.finalStatus == nil, let end = rest.firstIndex(of: 0x0A) {
        // In a separate allocation, as from libcurl, so that reads past the end are detected.
        let line = Array(rest[...end])
        guard line.withUnsafeBytes({ reader.header($0) }) else { break }
        rest = rest[(end + 1)...]
    }
    let body = Array(rest)
    if reader.finalStatus != nil { _ = body.withUnsafeBytes { reader.body($0) } }
    switch reader.verdict(isWhole: true) {
    case .image(let image, let headers):
        precondition(image.count <= limits.image, "an image is over the limit")
        check(headers)
    case .missing(let headers), .unusable(_, let headers), .notModified(let headers): check(headers)
    case .redirect, .failed, nil: break
    }
    return 0
}

private func check(_ headers: ResponseHeaders) {
    let now: Int64 = 1_700_000_000
    let origin = Origin(name: "o", url: "https://h/{profile}")
    let time = ResponseTime(now: now, wallClock: now)
    let redirected = ResponseHeaders(headers.fields, delay: 3, redirects: [headers])
    for headers in [headers, redirected] {
        let freshness = StoragePolicy(StoredFields(headers), headers, origin: origin, at: time).freshness
        precondition(freshness.initialAge >= 0 && freshness.lifetime ?? 0 >= 0, "a time is negative")
        precondition(freshness.staleWhileRevalidate >= 0 && freshness.staleIfError >= 0, "a window is negative")
        for moment: Int64 in [.min / 2, 0, now, .max / 2] { _ = freshness.state(at: moment) }
        let until = NegativePolicy.believedUntil(headers, origin: origin, at: time)
        precondition((now...now + origin.negativeTTLMax).contains(until), "a negative entry lives too long")
    }
    for value in headers.fields.values.joined() {
        if let date = HTTPDate.seconds(value, now: now) {
            // Years of four digits.
            precondition(-62_167_219_200...253_402_300_800 ~= date, "a date is out of range")
        }
    }
}
