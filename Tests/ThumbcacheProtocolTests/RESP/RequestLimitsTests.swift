import NIOCore
import Testing

@testable import ThumbcacheProtocol

@Suite struct RequestLimitsTests {
    static let limits = RequestLimits(arguments: 4, payloadBytes: 250, argument: 100)

    static let hostile: [(bytes: String, message: String, isTooLarge: Bool)] = [
        ("*5\r\n", "a request of 5 arguments: at most 4 are accepted", false),
        ("*1000000000\r\n", "a request of 1000000000 arguments: at most 4 are accepted", false),
        ("*9223372036854775807\r\n", "a request of 9223372036854775807 arguments: at most 4 are accepted", false),
        ("*9223372036854775808\r\n", "a request of 9223372036854775808 arguments: at most 4 are accepted", false),
        ("*18446744073709551617\r\n", "a request of 18446744073709551617 arguments: at most 4 are accepted", false),
        (
            "*99999999999999999999999999999\r\n",
            "a request of 99999999999999999999999999999 arguments: at most 4 are accepted", false
        ),
        (
            "*-9223372036854775808\r\n",
            "invalid array length '-9223372036854775808': expected a decimal number from 0 to 4 and CRLF", false
        ),
        ("*1\r\n*1\r\n", "expected '$', got '*': the command's name must be a bulk string", false),
        ("*1\r\n$101\r\n", "the command's name has 101 bytes: at most 100 are accepted", true),
        (
            "*1\r\n$9223372036854775807\r\n",
            "the command's name has 9223372036854775807 bytes: at most 100 are accepted",
            true
        ),
        (
            "*1\r\n$9223372036854775808\r\n",
            "the command's name has 9223372036854775808 bytes: at most 100 are accepted",
            true
        ),
        (
            "*1\r\n$-1\r\n",
            "invalid length '-1' of the command's name: expected a decimal number from 0 to 100 and CRLF",
            false
        ),
        (
            "*1\r\n$-9223372036854775808\r\n",
            "invalid length '-9223372036854775808' of the command's name: "
                + "expected a decimal number from 0 to 100 and CRLF", false
        ),
    ]

    @Test(arguments: hostile)
    func `F21: a declared length over the limits is rejected as soon as its line is read`(
        bytes: String, message: String, isTooLarge: Bool
    ) {
        for pieces in cuts(of: bytes.bytes) {
            let error = decodeRequests(pieces, limits: Self.limits).error
            #expect(error == ProtocolError(message, isTooLarge: isTooLarge))
        }
    }

    @Test func `F21: after a rejected length, no bytes are missing`() {
        var decoder = RequestDecoder(limits: Self.limits)
        var buffer = ByteBuffer(string: "*1\r\n$2000000000\r\n")
        let capacity = buffer.capacity
        #expect(throws: ProtocolError.self) { try decoder.next(&buffer) }
        #expect(decoder.missingBytes == 0)
        #expect(buffer.capacity == capacity)
    }

    @Test func `The maximum number of arguments is accepted`() {
        let bytes = encode(Array(repeating: [1], count: 4))
        #expect(decodeRequests([bytes[...]], limits: Self.limits).messages.count == 1)
    }

    @Test func `An argument of the maximum length is accepted`() {
        let bytes = encode([Array(repeating: 1, count: 100)])
        #expect(decodeRequests([bytes[...]], limits: Self.limits).messages.count == 1)
    }

    @Test func `Bulk strings of the maximum total length are accepted, and one byte more is rejected`() {
        let longest = encode([
            Array(repeating: 1, count: 100), Array(repeating: 2, count: 100), Array(repeating: 3, count: 50),
        ])
        #expect(decodeRequests([longest[...]], limits: Self.limits).messages.count == 1)
        let longer = encode([
            Array(repeating: 1, count: 100), Array(repeating: 2, count: 100), Array(repeating: 3, count: 51),
        ])
        for pieces in cuts(of: longer) {
            #expect(
                decodeRequests(pieces, limits: Self.limits).error
                    == ProtocolError("the request has more than 250 bytes: at most 250 are accepted", isTooLarge: true))
        }
    }

    @Test func `The limits apply to each request`() {
        let one = encode([Array(repeating: 1, count: 100), Array(repeating: 2, count: 100)])
        let three = one + one + one
        #expect(decodeRequests([three[...]], limits: Self.limits).messages.count == 3)
    }
}
