import NIOCore
import ThumbcacheProtocol

@testable import thumbcachectl

/// F22, F23: whatever a daemon replies, thumbcachectl shows it without a trap and without a byte that a terminal obeys;
/// what is shown of an id can be told from every other.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = Array(UnsafeRawBufferPointer(start: start, count: count))
    let shown = PlainText.escape(bytes)
    check(isFit(shown), "an id is shown with what a terminal obeys")
    check(unescaped(shown) == bytes, "what is shown of an id is not that id")
    var buffer = ByteBuffer(bytes: bytes)
    do throws(ProtocolError) {
        while let value = try buffer.readReply(limit: 1 << 20, depth: 8) {
            check(isFit(value.json), "JSON with what a terminal obeys")
        }
    } catch {
        check(!error.message.isEmpty, "a reply is refused without a reason")
    }
    return 0
}

/// No control character of ASCII or of Latin 1 and no line break.
private func isFit(_ text: String) -> Bool {
    text.unicodeScalars.allSatisfy { $0.value >= 0x20 && !(0x7f...0x9f).contains($0.value) }
}

private func unescaped(_ text: String) -> [UInt8] {
    var bytes: [UInt8] = []
    var rest = Array(text.utf8)[...]
    while let byte = rest.popFirst() {
        guard byte == UInt8(ascii: "\\") else {
            bytes.append(byte)
            continue
        }
        if rest.popFirst() == UInt8(ascii: "\\") {
            bytes.append(byte)
        } else {
            bytes.append(UInt8(String(decoding: rest.prefix(2), as: UTF8.self), radix: 16) ?? 0)
            rest = rest.dropFirst(2)
        }
    }
    return bytes
}

private func check(_ isTrue: Bool, _ claim: StaticString) {
    if !isTrue { fatalError("\(claim)") }
}
