import Foundation
import TestSupport
import Testing

@testable import JSONReader

@Suite struct JSONValueTests {
    private static func value(_ text: String) -> JSONValue? { JSONValue(Array(text.utf8)) }

    private static func nested(_ depth: Int, _ begin: String, _ end: String) -> String {
        String(repeating: begin, count: depth) + "1" + String(repeating: end, count: depth)
    }

    @Test(
        arguments: [
            (#""""#, ""), (#""é€😀""#, "é€😀"), (#""\u00e9\u20AC\ud83d\ude00!""#, "é€😀!"), (#""a\u0000b""#, "a\u{0}b"),
            (#""\"\\\/\b\f\n\r\t""#, "\"\\/\u{8}\u{c}\n\r\t"), ("\u{FEFF} \"x\" ", "x"),
        ] as [(String, String)])
    func `a string is decoded with its escapes`(json: String, text: String) {
        #expect(Self.value(json)?.text == text)
    }

    @Test(arguments: [
        #""\ud83d""#, #""\ude00\ud83d""#, #""\ud83dx\ude00""#, "1", "null", "[\"x\"]", "{\"x\":\"x\"}", "true",
    ])
    func `other values and unpaired surrogates are not strings`(json: String) throws {
        #expect(try #require(Self.value(json)).text == nil)
    }

    @Test func `invalid UTF-8 is not a string`() throws {
        for bytes in [[0xC3], [0xFF], [0xED, 0xA0, 0x80], [0xC0, 0x80]] as [[UInt8]] {
            #expect(try #require(JSONValue([0x22] + bytes + [0x22])).text == nil)
        }
    }

    @Test func `elements and members are read one level at a time`() throws {
        let value = try #require(Self.value(#" {"a" : [ 1 , -0.5e1, "x", [], {} ], "\u0062": {"c": null}, "": true} "#))
        let members = try #require(value.members)
        #expect(Set(members.keys) == ["a", "b", ""])
        let elements = try #require(members["a"]?.elements)
        #expect(elements.map(\.number) == [1, -5, nil, nil, nil])
        #expect(elements[3].elements?.isEmpty == true && elements[4].members?.isEmpty == true)
        #expect(members["b"]?.members?["c"]?.isNull == true)
        #expect(members["b"]?.isObject == true && members["a"]?.isObject == false)
        #expect(value.elements == nil && members["a"]?.members == nil && members[""]?.number == nil)
    }

    @Test(arguments: [#"{"a":1,"a":1}"#, #"{"a":1,"\u0061":1}"#, #"{"\ud800":1}"#])
    func `an object with a repeated or invalid name has no members`(json: String) throws {
        #expect(try #require(Self.value(json)).members == nil)
    }

    @Test(arguments: [
        "", " ", "x", "[", "[1", "[1,", "[1,]", "[,]", "{", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":1,}", "{1:1}",
        "1 1", "nul",
        "tru", "\"", "\"\\\"", "\"\\x\"", "\"\\u12\"", "\"\n\"", "01", "+1", "1.", ".1", "1e", "-", "NaN", "]", "}",
        "[}", "{]",
    ])
    func `anything but one JSON value is rejected`(json: String) { #expect(Self.value(json) == nil) }

    @Test(arguments: [("[", "]"), ("{\"a\":", "}")])
    func `64 levels are accepted and more are rejected`(begin: String, end: String) throws {
        var value = Self.value(Self.nested(64, begin, end))
        for _ in 0..<64 { value = value?.elements?.first ?? value?.members?["a"] }
        #expect(value?.number == 1)
        for depth in [65, 512, 513, 514, 100_000] {
            #expect(Self.value(Self.nested(depth, begin, end)) == nil)
            #expect(Self.value(String(repeating: begin, count: depth)) == nil)
        }
    }

    @Test func `numbers have at most 64 characters and may be infinite`() throws {
        #expect(Self.value(String(repeating: "9", count: 64))?.number == 1e64)
        #expect(try #require(Self.value(String(repeating: "9", count: 65))).number == nil)
        #expect(Self.value("1e999")?.number == .infinity && Self.value("-1e999")?.number == -.infinity)
        #expect(Self.value("9223372036854775808")?.number == 0x1p63)
    }

    @Test func `no prefix and no changed byte traps`() {
        let text = Array(#"{"a":[1,-2.5e+3,"\u00e9\ud83d\ude00é",{"b":null}],"c":true}"#.utf8)
        func read(_ value: JSONValue?) {
            _ = (value?.text, value?.number, value?.isNull)
            for element in value?.elements ?? [] { read(element) }
            for member in value?.members ?? [:] { read(member.value) }
        }
        for end in 0..<text.count {
            #expect(JSONValue(Array(text[..<end])) == nil)
            for byte in UInt8.min...UInt8.max {
                var changed = text
                changed[end] = byte
                read(JSONValue(changed))
            }
        }
    }

    /// A value as `JSONSerialization` would compare it.
    private static func plain(_ value: JSONValue) -> AnyHashable? {
        if value.isNull { return NSNull() }
        if let text = value.text { return text }
        if let number = value.number { return number }
        if let elements = value.elements { return elements.map(plain) }
        return value.members?.mapValues(plain)
    }

    private static func drawn(depth: Int, _ dice: inout SeededRandom) -> (json: Any, plain: AnyHashable?) {
        switch Int.random(in: 0...(depth > 0 ? 4 : 2), using: &dice) {
        case 0:
            let scalars = (0..<Int.random(in: 0...12, using: &dice)).compactMap { _ in
                Unicode.Scalar(UInt32.random(in: 0...0x1_FFFF, using: &dice))
            }
            let text = String(String.UnicodeScalarView(scalars))
            return (text, text)
        case 1:
            let number = Double(Int64.random(in: -(1 << 52)...1 << 52, using: &dice)) / 1_024
            return (number, number)
        case 2: return (NSNull(), NSNull())
        case 3:
            let elements = (0..<Int.random(in: 0...4, using: &dice)).map { _ in drawn(depth: depth - 1, &dice) }
            return (elements.map(\.json), elements.map(\.plain))
        default:
            let members = (0..<Int.random(in: 0...4, using: &dice)).map { ("m\($0)", drawn(depth: depth - 1, &dice)) }
            return (
                Dictionary(uniqueKeysWithValues: members.map { ($0, $1.json) }),
                Dictionary(uniqueKeysWithValues: members.map { ($0, $1.plain) })
            )
        }
    }

    @Test func `output of JSONSerialization is read correctly`() throws {
        var dice = SeededRandom(seed: 27)
        for _ in 0..<2_000 {
            let (json, plain) = Self.drawn(depth: 8, &dice)
            let options: JSONSerialization.WritingOptions = Bool.random(using: &dice) ? [.prettyPrinted] : []
            let bytes = [UInt8](
                try JSONSerialization.data(withJSONObject: json, options: options.union(.fragmentsAllowed)))
            #expect(try Self.plain(#require(JSONValue(bytes))) == plain)
        }
    }
}
