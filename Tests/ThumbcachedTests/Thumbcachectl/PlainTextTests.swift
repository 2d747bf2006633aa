import Foundation
import NIOCore
import Testing
@_spi(Wire) import Thumbcache
import ThumbcacheProtocol

@testable import thumbcachectl

@Suite struct PlainTextTests {
    @Test(
        arguments: [
            ([0x61, 0xff, 0x62], "a\\xffb"),
            ([0xc3], "\\xc3"),
            ([0xc3, 0x28], "\\xc3("),
            ([0xe2, 0x82], "\\xe2\\x82"),
            ([0xed, 0xa0, 0x80], "\\xed\\xa0\\x80"),
            ([0xc0, 0x80], "\\xc0\\x80"),
            ([0xf0, 0x9f, 0x98, 0x80], "😀"),
            ([0x00, 0x7f, 0xc2, 0x9b], "\\x00\\x7f\\xc2\\x9b"),
            ([0x5c, 0x78, 0x30, 0x30], "\\\\x00"),
            ([], ""),
        ] as [([UInt8], String)])
    func `F23: invisible and invalid bytes are escaped`(_ bytes: [UInt8], _ text: String) {
        #expect(PlainText.escape(bytes) == text)
    }

    @Test func `escaping is injective`() {
        // Compared as bytes, because Swift strings are equal if they are canonically equivalent.
        var seen: Set<[UInt8]> = []
        let bytes = UInt8.min...UInt8.max
        for first in bytes {
            seen.insert(Array(PlainText.escape([first]).utf8))
            for second in bytes { seen.insert(Array(PlainText.escape([first, second]).utf8)) }
        }
        #expect(seen.count == 256 + 65_536)
    }

    @Test func `bytes that are not UTF-8 become base64 in JSON`() {
        #expect(Value.bulk(ByteBuffer(bytes: [0xff, 0x00])).json == #"{"base64":"/wA="}"#)
        #expect(Value.bulk(ByteBuffer(string: "a\u{0}\u{7f}/\u{1d173}")).json == #""a\u0000\u007f/\ud834\udd73""#)
    }

    @Test func `base64 matches Foundation's encoding`() {
        for count in 0..<64 {
            let bytes = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 151 &+ count) }
            #expect(base64(bytes) == Data(bytes).base64EncodedString())
        }
    }

    @Test func `the socket is the first that is named or exists`() throws {
        func choose(
            _ option: String?, _ variables: [String: String], root: Bool = false, _ existing: String...
        ) throws -> String {
            if let option {
                var options = DaemonOptions()
                options.socket = option
                return try Environment(variable: { variables[$0] }).socket(options)
            }
            return ThumbcacheSocket.path(
                isRoot: root, variable: { variables[$0] }, exists: { existing.contains($0) })
        }
        let (machine, own) = ("/run/thumbcached/thumbcached.sock", "/run/user/1000/thumbcached/thumbcached.sock")
        let session = ["XDG_RUNTIME_DIR": "/run/user/1000"]
        let both = ["THUMBCACHED_SOCKET": "/named", "XDG_RUNTIME_DIR": "/run/user/1000"]
        #expect(try choose("/option", both, machine, own) == "/option")
        #expect(try choose(nil, both, machine, own) == "/named")
        #expect(try choose(nil, session, machine) == machine)
        #expect(try choose(nil, session, machine, own) == own)
        #expect(try choose(nil, session, root: true, machine, own) == machine)
        #expect(try choose(nil, session, own) == own)
        #expect(try choose(nil, session) == own)
        #expect(try choose(nil, ["XDG_RUNTIME_DIR": "relative"]) == machine)
        #expect(try choose(nil, ["THUMBCACHED_SOCKET": ""]) == machine)
    }
}
