import NIOCore
import ThumbcacheProtocol

@_spi(Wire) @testable import Thumbcache
@testable import thumbcachectl
@testable import thumbcached_http

/// F22, F23: any reply to the client library, to `thumbcachectl` and to thumbcached-http is accepted or rejected
/// without a trap, and what they display has no control characters. The first byte selects what the rest is: the text
/// of METRICS, the text of INFO, a message of SUBSCRIBE, or replies.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = UnsafeRawBufferPointer(start: start, count: count)
    guard let first = bytes.first else { return 0 }
    let rest = bytes.dropFirst()
    switch first & 3 {
    case 0: metrics(String(decoding: rest, as: UTF8.self))
    case 1: draw(halves(rest).enumerated().map { TopFigures(info: $1, time: Double($0)) })
    case 2: event(ByteBuffer(bytes: rest))
    default: replies(ByteBuffer(bytes: rest))
    }
    return 0
}

/// The two texts before and after a form feed: consecutive states of one daemon.
private func halves(_ text: some Collection<UInt8>) -> [String] {
    text.split(separator: 0x0C, maxSplits: 1, omittingEmptySubsequences: false)
        .map { String(decoding: $0, as: UTF8.self) }
}

private func metrics(_ text: String) {
    let texts = halves(text.utf8)
    var history = History()
    var latest: Scrape?
    var figures: [TopFigures] = []
    for (index, text) in texts.enumerated() {
        let moment = NIODeadline.uptimeNanoseconds(UInt64(index + 1) * 5_000_000_000)
        guard let metrics = try? ThumbcacheMetrics(text) else { continue }
        latest = Scrape(moment: moment, outcome: .success(.init(text: text, metrics: metrics)))
        history.append(Sample(metrics, at: moment))
        figures.append(TopFigures(metrics, time: Double(index)))
    }
    let page = StatusPage(latest: latest, history: history, now: .uptimeNanoseconds(20_000_000_000)).html(nonce: "0")
    check(isDisplayable(page), "the page contains a control character")
    check(!page.contains("<script") && !page.contains("<img"), "the page contains an element of the daemon")
    draw(figures)
}

private func draw(_ figures: [TopFigures]) {
    guard let now = figures.last else { return }
    let before = figures.count > 1 ? figures.first : nil
    let screen = TopScreen(now: now, before: before, clock: "12:00", trouble: nil)
    for line in screen.lines(Terminal.Size(columns: 80, rows: 60)) {
        check(line.text.count <= 80 && isDisplayable(line.text), "a line of top is invalid")
    }
    check(isDisplayable(now.json(since: before)), "top's JSON contains a control character")
}

private func event(_ payload: ByteBuffer) {
    guard case .purge(let user, let profile?, _)? = ThumbcacheEvent(user: "u", payload: payload) else { return }
    check(user == "u" && profile.bytes.count < payload.readableBytes, "an event has another id")
}

private func replies(_ bytes: ByteBuffer) {
    var (buffer, values, isValid) = (bytes, [Value](), true)
    do throws(ProtocolError) {
        while let value = try buffer.readReply(limit: 1 << 20) {
            read(value)
            values.append(value)
        }
    } catch {
        isValid = false
        check(!error.message.isEmpty, "a reply is rejected without a reason")
    }
    // Many short reads of a long array take too long.
    for size in bytes.readableBytes < 512 ? [3, 64] : [64, 600] {
        let decoded = decode(bytes, inReadsOf: size)
        check(decoded.values == values && decoded.isValid == isValid, "the size of reads changes the replies")
    }
}

/// Returns the replies before the first invalid one.
private func decode(_ bytes: ByteBuffer, inReadsOf size: Int) -> (values: [Value], isValid: Bool) {
    var (rest, values) = (bytes, [Value]())
    var decoder = ReplyDecoder(longestReply: 1 << 20)
    do throws(ProtocolError) {
        while rest.readableBytes > 0, let read = rest.readSlice(length: min(size, rest.readableBytes)) {
            decoder.append(read)
            while let value = try decoder.next() { values.append(value) }
        }
        return (values, true)
    } catch {
        return (values, false)
    }
}

private func read(_ value: Value) {
    _ = try? ThumbcacheImage(value)
    _ = try? Receipt(value)
    _ = try? UserStatus(value)
    if let explanation = try? ImageExplanation(value) {
        let lines = ExplanationText(explanation: explanation, purge: "PURGE", now: 1_700_000_000).lines
        check(lines.allSatisfy(isDisplayable), "an explanation contains a control character")
    }
    for style in [Printer.Style.aligned, .plain, .json] {
        let lines = Printer(style: style).lines(of: value)
        check(lines.allSatisfy { isDisplayable($0) && !$0.contains("\n") }, "a line contains a control character")
    }
}

/// Contains no control characters of ASCII or Latin 1 but line breaks.
private func isDisplayable(_ text: String) -> Bool {
    text.unicodeScalars.allSatisfy { $0.value >= 0x20 && !(0x7f...0x9f).contains($0.value) || $0 == "\n" }
}

private func check(_ isTrue: Bool, _ claim: StaticString) {
    if !isTrue { fatalError("\(claim)") }
}
