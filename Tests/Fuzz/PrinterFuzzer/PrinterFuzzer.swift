import NIOCore
import ThumbcacheProtocol

@testable import thumbcachectl

/// F22, F23: thumbcachectl displays any reply without a trap and without terminal control characters; different ids are
/// displayed differently.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = Array(UnsafeRawBufferPointer(start: start, count: count))
    let shown = PlainText.escape(bytes)
    check(isPrintable(shown), "displayed id contains a control character")
    check(unescaped(shown) == bytes, "a displayed id is ambiguous")
    var buffer = ByteBuffer(bytes: bytes)
    do throws(ProtocolError) {
        while let value = try buffer.readReply(limit: 1 << 20, depth: 8) {
            check(isPrintable(value.json), "JSON contains a control character")
        }
    } catch {
        check(!error.message.isEmpty, "a reply is rejected without a reason")
    }
    return 0
}

/// Contains no control characters of ASCII or Latin 1, and no line break.
private func isPrintable(_ text: String) -> Bool {
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
