import NIOCore
import Testing

@testable import ThumbcacheProtocol

@Suite struct RequestDecoderTests {
    static let wellFormed: [(bytes: String, requests: [[String]])] = [
        ("", []),
        ("*1\r\n$4\r\nPING\r\n", [["PING"]]),
        ("*3\r\n$3\r\nGET\r\n$5\r\nalice\r\n$3\r\nbob\r\n", [["GET", "alice", "bob"]]),
        ("*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", [["ECHO", ""]]),
        ("*2\r\n$4\r\nECHO\r\n$4\r\n\r\n\r\n\r\n", [["ECHO", "\r\n\r\n"]]),
        ("*2\r\n$4\r\nECHO\r\n$9\r\n*1\r\n$1\r\nX\r\n", [["ECHO", "*1\r\n$1\r\nX"]]),
        ("*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nQUIT\r\n", [["PING"], ["QUIT"]]),
        ("*0\r\n", []),
        ("\r\n", []),
        ("\r\n*1\r\n$4\r\nPING\r\n\r\n\r\n", [["PING"]]),
        ("*-1\r\n", []),
        ("*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n*0\r\n", [["PING"]]),
        (
            "*10\r\n" + (0..<10).map { "$1\r\n\($0)\r\n" }.joined(),
            [["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]]
        ),
    ]

    @Test(arguments: wellFormed)
    func `Requests do not depend on how the input is split`(bytes: String, requests: [[String]]) {
        let expected = Outcome(messages: requests.map { $0.map(\.bytes) })
        for pieces in cuts(of: bytes.bytes) {
            #expect(decodeRequests(pieces) == expected)
        }
    }

    static let malformed: [(bytes: String, message: String)] = [
        // Not an array.
        ("PING\r\n", "expected '*', got 'P': a request is an array of bulk strings, not a line of text"),
        ("GET / HTTP/1.1\r\n\r\n", "expected '*', got 'G': a request is an array of bulk strings, not a line of text"),
        ("POST / HTTP/1.1\r\n", "expected '*', got 'P': a request is an array of bulk strings, not a line of text"),
        ("$4\r\nPING\r\n", "expected '*', got '$': a request is an array of bulk strings, not a line of text"),
        ("\rx", "expected '*', got '\\x0d': a request is an array of bulk strings, not a line of text"),
        ("\u{0}", "expected '*', got '\\x00': a request is an array of bulk strings, not a line of text"),
        ("'", "expected '*', got '\\x27': a request is an array of bulk strings, not a line of text"),
        ("*1\r\n$4\r\nPING\r\nx", "expected '*', got 'x': a request is an array of bulk strings, not a line of text"),
        // Not of bulk strings.
        ("*1\r\n*1\r\n$4\r\nPING\r\n", "expected '$', got '*': the command's name must be a bulk string"),
        ("*2\r\n$3\r\nGET\r\n:1\r\n", "expected '$', got ':': argument 1 must be a bulk string"),
        ("*2\r\n$3\r\nGET\r\n_\r\n", "expected '$', got '_': argument 1 must be a bulk string"),
        ("*1\r\n\r\n", "expected '$', got '\\x0d': the command's name must be a bulk string"),
        // No count.
        ("*\r\n", "invalid array length '': expected a decimal number from 0 to 1024 and CRLF"),
        ("*-2\r\n", "invalid array length '-2': expected a decimal number from 0 to 1024 and CRLF"),
        ("*+1\r\n", "invalid array length '+1': expected a decimal number from 0 to 1024 and CRLF"),
        ("*01\r\n", "invalid array length '01': expected a decimal number from 0 to 1024 and CRLF"),
        ("*00\r\n", "invalid array length '00': expected a decimal number from 0 to 1024 and CRLF"),
        ("*-0\r\n", "invalid array length '-0': expected a decimal number from 0 to 1024 and CRLF"),
        ("*-01\r\n", "invalid array length '-01': expected a decimal number from 0 to 1024 and CRLF"),
        ("* 1\r\n", "invalid array length ' ...': expected a decimal number from 0 to 1024 and CRLF"),
        ("*1 \r\n", "invalid array length '1 ': expected a decimal number from 0 to 1024 and CRLF"),
        ("*0x1\r\n", "invalid array length '0x...': expected a decimal number from 0 to 1024 and CRLF"),
        ("*1\n", "invalid array length '1': expected a decimal number from 0 to 1024 and CRLF"),
        ("*1\rx\n", "invalid array length '1\\x0d...': expected a decimal number from 0 to 1024 and CRLF"),
        ("*?\r\n", "invalid array length '?': expected a decimal number from 0 to 1024 and CRLF"),
        ("*\u{661}\r\n", "invalid array length '\\xd9...': expected a decimal number from 0 to 1024 and CRLF"),
        // No length.
        (
            "*1\r\n$\r\n\r\n",
            "invalid length '' of the command's name: expected a decimal number from 0 to 5242880 and CRLF"
        ),
        (
            "*2\r\n$3\r\nGET\r\n$-1\r\n",
            "invalid length '-1' of argument 1: expected a decimal number from 0 to 5242880 and CRLF"
        ),
        (
            "*1\r\n$+4\r\nPING\r\n",
            "invalid length '+4' of the command's name: expected a decimal number from 0 to 5242880 and CRLF"
        ),
        (
            "*1\r\n$04\r\nPING\r\n",
            "invalid length '04' of the command's name: expected a decimal number from 0 to 5242880 and CRLF"
        ),
        (
            "*1\r\n$4\nPING\r\n",
            "invalid length '4' of the command's name: expected a decimal number from 0 to 5242880 and CRLF"
        ),
        (
            "*1\r\n$4;secret-token\r\n",
            "invalid length '4;...' of the command's name: expected a decimal number from 0 to 5242880 and CRLF"
        ),
        // No end.
        ("*1\r\n$4\r\nPINGS\r\n", "the command's name does not end with CRLF after its 4 bytes"),
        ("*2\r\n$4\r\nECHO\r\n$2\r\nx\r\n*1\r\n", "argument 1 does not end with CRLF after its 2 bytes"),
        ("*1\r\n$4\r\nPING\n\n", "the command's name does not end with CRLF after its 4 bytes"),
        ("*1\r\n$4\r\nPING\r\r", "the command's name does not end with CRLF after its 4 bytes"),
    ]

    @Test(arguments: malformed)
    func `F22: the error for an invalid request does not depend on how the input is split`(
        bytes: String, message: String
    ) {
        for pieces in cuts(of: bytes.bytes) {
            #expect(decodeRequests(pieces).error == ProtocolError(message))
        }
    }

    @Test(arguments: ["*", "*1\r\n$"])
    func `F21: an endless length line is rejected at its thirty-second byte`(start: String) throws {
        let line = start + String(repeating: "1", count: 30)
        #expect(decodeRequests([line.bytes[...]]).error == nil)
        let error = try #require(decodeRequests([(line + "1").bytes[...]]).error)
        #expect(error.message.contains("'1111111111111111111111111111111'"))
        #expect(!error.isTooLarge)
    }

    @Test func `Every truncation of a request waits for more`() {
        let bytes = encode([[1, 2], [], Array(repeating: 13, count: 40), [10]])
        for length in 0..<bytes.count {
            let outcome = decodeRequests([bytes[..<length]])
            #expect(outcome.messages.isEmpty && outcome.error == nil)
        }
    }

    @Test func `Empty arrays before an incomplete request do not accumulate`() throws {
        var decoder = RequestDecoder(limits: RequestLimits())
        var buffer = ByteBuffer(string: String(repeating: "*0\r\n", count: 1000) + "*1\r\n$4\r\nPI")
        #expect(try decoder.next(&buffer) == nil)
        #expect(buffer.readableBytes <= 14)
        buffer.writeString("NG\r\n")
        #expect(try decoder.next(&buffer)?[0] == ByteBuffer(string: "PING"))
    }

    @Test func `After an error, the decoder repeats it for any input`() throws {
        var decoder = RequestDecoder(limits: RequestLimits())
        var buffer = ByteBuffer(string: "nonsense")
        let error = try #require(throws: ProtocolError.self) { try decoder.next(&buffer) }
        buffer = ByteBuffer(string: "*1\r\n$4\r\nPING\r\n")
        #expect(throws: error) { try decoder.next(&buffer) }
    }

    @Test func `The read part of an incomplete request is not read again`() throws {
        var decoder = RequestDecoder(limits: RequestLimits())
        var buffer = ByteBuffer(string: "*2\r\n$3\r\nPUT\r\n$5\r\nab")
        #expect(try decoder.next(&buffer) == nil)
        // If it were read again, it would be invalid now.
        for index in 0..<4 { buffer.setInteger(UInt8(ascii: "x"), at: index) }
        for index in 14..<16 { buffer.setInteger(UInt8(ascii: "y"), at: index) }
        #expect(try decoder.next(&buffer) == nil)
        buffer.writeString("cde\r\n")
        let request = try #require(try decoder.next(&buffer))
        #expect(request.count == 2)
        #expect(request[1] == ByteBuffer(string: "abcde"))
    }

    @Test func `The decoder reports whether it is inside a frame and how many bytes are missing`() throws {
        var decoder = RequestDecoder(limits: RequestLimits())
        var buffer = ByteBuffer()
        // After each piece: inside a frame or not, and the bytes known to be missing.
        let steps: [(String, Bool, Int)] = [
            ("", false, 0), ("*", true, 0), ("2\r\n", true, 0), ("$3", true, 0), ("\r\n", true, 5), ("GE", true, 3),
            ("T", true, 2), ("\r", true, 1), ("\n", true, 0), ("$100\r\n", true, 102), ("0123456789", true, 92),
        ]
        for (piece, isInside, missing) in steps {
            buffer.writeString(piece)
            #expect(try decoder.next(&buffer) == nil)
            #expect(decoder.isInsideFrame == isInside, "after \(piece)")
            #expect(decoder.missingBytes == missing, "after \(piece)")
        }
        buffer.writeString(String(repeating: "x", count: 90) + "\r\n*")
        #expect(try decoder.next(&buffer)?.count == 2)
        #expect(!decoder.isInsideFrame)
        #expect(try decoder.next(&buffer) == nil)
        #expect(decoder.isInsideFrame)
        buffer.writeString("0\r\n")
        #expect(try decoder.next(&buffer) == nil)
        #expect(!decoder.isInsideFrame)
        #expect(buffer.readableBytes == 0)
    }

    @Test func `A request shares the storage it was read from`() throws {
        var decoder = RequestDecoder(limits: RequestLimits())
        var buffer = ByteBuffer(string: "*10\r\n" + (0..<10).map { "$2\r\n\($0)x\r\n" }.joined())
        let storage = buffer.withUnsafeReadableBytes { $0 }
        let request = try #require(try decoder.next(&buffer))
        for index in 0..<10 {
            #expect(request[index] == ByteBuffer(string: "\(index)x"))
            request.withBytes(of: index) { bytes in
                #expect(Array(bytes) == "\(index)x".bytes)
                #expect(storage.baseAddress.map { bytes.baseAddress == $0 + 5 + 8 * index + 4 } == true)
            }
        }
    }
}
