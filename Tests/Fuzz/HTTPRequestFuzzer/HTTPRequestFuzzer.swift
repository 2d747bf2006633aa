import NIOCore
import NIOEmbedded
import NIOHTTP1

@testable import Thumbcache
@testable import thumbcached_http

/// F87, F88: requests to thumbcached-http. Nothing may trap, no response may contain a line break of a client in its
/// head or an element of a client in its image, and no user may have an ambiguous path.
///
/// The first byte selects the input: a request target and header fields, one per line, or the bytes of a connection,
/// for which the second byte is the size of the pieces in which they are received.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = UnsafeRawBufferPointer(start: start, count: count)
    guard count > 2 else { return 0 }
    if bytes[0] & 1 == 0 {
        respond(to: head(bytes[1...]))
    } else {
        let input = ByteBuffer(bytes: bytes[2...])
        let whole = output(input, pieces: input.readableBytes)
        check(output(input, pieces: Int(bytes[1]) + 1) == whole, "the responses depend on the pieces")
    }
    return 0
}

// MARK: One request

private func head(_ text: Slice<UnsafeRawBufferPointer>) -> HTTPRequestHead {
    let lines = text.split(separator: 0x0A, omittingEmptySubsequences: false).map {
        String(decoding: $0, as: UTF8.self)
    }
    var headers = HTTPHeaders()
    for line in lines.dropFirst() {
        let parts = line.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        // SwiftNIO rejects other names.
        guard parts.count == 2, parts[0].utf8.allSatisfy({ 0x21...0x7E ~= $0 }) else { continue }
        headers.add(name: String(parts[0]), value: String(parts[1].drop { $0 == " " }))
    }
    return HTTPRequestHead(version: .http1_1, method: .GET, uri: lines.first ?? "", headers: headers)
}

private let now: Int64 = 1_700_000_000
private let hosts = HeadCheck(
    hosts: HostRule([HostName("images.example.org")].compactMap { $0 }), hostSetting: "images.hosts")
private let allowed = "https://www.example.org/defaults/"

private let rules: [ImageRules] = ImageSettings.PerUser.allCases.map { perUser in
    var settings = ImageSettings()
    (settings.user, settings.perUser, settings.usualDefault) = ("site", perUser, .initials)
    settings.defaultURLs = [URLPrefix(allowed)].compactMap { $0 }
    let keys = try? SigningKeys(Array(repeating: UInt8(ascii: "k"), count: SigningKeys.shortest))
    return ImageRules(settings: settings, keys: keys, check: hosts)
}

private let image = ThumbcacheImage(
    bytes: ByteBuffer(string: "image"),
    status: ImageStatus(
        digest: String(repeating: "a", count: 64), type: "image/png", length: 5, width: 1, height: 1, age: .zero,
        timeToLive: .seconds(60), state: .fresh, source: .memory, epoch: 1, rendered: nil))

private func respond(to head: HTTPRequestHead) {
    switch FiguresRoute(head, hosts) {
    case .refused(let refusal): check(refusal.response)
    case .page, .metrics: break
    }
    for rules in rules {
        switch rules.route(head, now: now) {
        case .refused(let refusal): check(refusal.response)
        case .answered(let response): check(response)
        case .image(let request):
            check(request, rules)
            for outcome: ImageOutcome in [.image(image), .missing, .failure(.busy), .failure(.timeout)] {
                check(rules.response(to: request, outcome))
            }
        }
    }
}

private func check(_ request: ImageRequest, _ rules: ImageRules) {
    check(1...rules.settings.sizeLimit ~= request.size, "a size is over the limit")
    check([32, 64].contains(request.hash.utf8.count) && request.hash == request.hash.lowercased(), "an invalid hash")
    let user = request.user.bytes
    check(1...512 ~= user.count && !user.contains { $0 < 0x20 || [0x2F, 0x5C, 0x7F].contains($0) }, "an invalid user")
    check(!["*", ".", ".."].contains("\(request.user)"), "a reserved user")
}

private func check(_ response: Response) {
    let head = response.head(closes: false, at: now)
    for (name, value) in head.headers {
        check(value.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7F }, "a field contains a control character")
        if name == "Location" { check(value.hasPrefix(allowed), "a redirect to another place") }
    }
    guard response.contentType == "image/svg+xml" else { return }
    let text = String(buffer: response.body)
    let elements = text.split(separator: "<").map { $0.prefix { $0 != " " && $0 != ">" } }
    let known: Set<Substring> = ["svg", "/svg", "rect", "circle", "path", "text", "/text"]
    check(elements.allSatisfy(known.contains), "an image contains an element of the client")
}

// MARK: One connection

/// Returns the responses to the bytes of a connection.
private func output(_ input: ByteBuffer, pieces: Int) -> ByteBuffer {
    let channel = EmbeddedChannel()
    var limits = HTTPLimits()
    // So that no request is refused because others arrived with it.
    limits.pipelined = .max
    let connection = HTTPConnection(
        limits: limits, now: { .uptimeNanoseconds(1) }, wallClock: { now }, timeoutChanged: { _ in },
        respond: { head in
            if let refusal = hosts.refusal(of: head) { return .now(refusal.response, closes: refusal.closes) }
            return .now(Response(.ok, head.uri.isEmpty ? "empty" : "found"), closes: false)
        })
    do {
        let pipeline = channel.pipeline.syncOperations
        try pipeline.addHandler(HTTPResponseEncoder())
        try pipeline.addHandler(limits.makeDecoder())
        try pipeline.addHandler(connection)
        channel.connect(to: try SocketAddress(unixDomainSocketPath: "/s"), promise: nil)
        channel.embeddedEventLoop.run()
    } catch {
        fatalError("\(error)")
    }
    var rest = input
    while channel.isActive, let piece = rest.readSlice(length: min(pieces, rest.readableBytes)), piece.readableBytes > 0
    {
        // Invalid requests are answered, and the channel reports them as well.
        do { try channel.writeInbound(piece) } catch {}
        channel.embeddedEventLoop.run()
    }
    var output = ByteBuffer()
    while let part = try? channel.readOutbound(as: ByteBuffer.self) { output.writeImmutableBuffer(part) }
    channel.close(promise: nil)
    channel.embeddedEventLoop.run()
    return output
}

private func check(_ isTrue: Bool, _ claim: StaticString) {
    if !isTrue { fatalError("\(claim)") }
}
