import Foundation
import TestSupport
import Testing

@testable import JSONReader

/// The reader for responses of token endpoints.
@Suite struct JSONObjectTests {
    private static func object<Result>(_ text: String, _ body: (JSONObject?) -> Result) -> Result {
        object(Array(text.utf8), body)
    }

    private static func object<Result>(_ bytes: [UInt8], _ body: (JSONObject?) -> Result) -> Result {
        bytes.withUnsafeBytes { body(JSONObject($0, members: ["a", "b"])) }
    }

    private static func text(_ json: String) -> String? {
        object(json) { $0?.withText("a") { String(decoding: $0, as: UTF8.self) } }
    }

    private static func nested(_ depth: Int, _ begin: String = "[", _ end: String = "]") -> String {
        String(repeating: begin, count: depth) + "1" + String(repeating: end, count: depth)
    }

    @Test(
        arguments: [
            (#"{"a":"x"}"#, "x"), (" {\n\t\"a\" :\r\"x\" } ", "x"), (#"{"b":[{"a":"y"},{}],"a":"x"}"#, "x"),
            (#"{"a":""}"#, ""), (#"{"a":"\"\\\/\b\f\n\r\t\u0041\u007e"}"#, "\"\\/\u{8}\u{c}\n\r\tA~"),
            (#"{"\u0061":"x"}"#, "x"), (#"{"aa":"y","A":"y","":"y","a\u0000":"y","a":"x"}"#, "x"),
            (#"{"c":{"d":[1,-0.5e+3,true,false,null,"]}"]},"c":2,"a":"x"}"#, "x"),
            ("\u{FEFF}{\"a\":\"x\"}", "x"), (#"{"é":"\ud800","c":"\u00e9é","a":"x"}"#, "x"),
            (#"{"a":null,"a":"x"}"#, "x"), ("{\"c\":\(nested(64)),\"a\":\"x\"}", "x"),
            ("{\"c\":\(nested(64, "{\"a\":", "}")),\"a\":\"x\"}", "x"),
        ] as [(String, String)])
    func `a string is found among other members`(json: String, text: String) {
        #expect(Self.text(json) == text)
    }

    @Test(arguments: [
        #"{"a":1}"#, #"{"a":["x"]}"#, #"{"a":{"a":"x"}}"#, #"{"a":true}"#, #"{"a":null}"#, "{}", #"{"b":"x"}"#,
        #"{"a":"é"}"#, #"{"a":"\u00e9"}"#, #"{"a":"\ud83d\ude00"}"#, #"{"a":"\ud800"}"#, #"{"a":"x\udc00"}"#,
    ])
    func `other values and strings that are not ASCII are absent`(json: String) {
        #expect(Self.text(json) == nil)
        Self.object(json) { #expect($0 != nil) }
    }

    @Test(arguments: [
        "", " ", "null", "[]", "\"a\"", "{", "}", "{]", "[}", "{}}", "{} x", "{,}", #"{"a"}"#, #"{"a":}"#,
        #"{"a" "x"}"#,
        #"{a:"x"}"#, #"{'a':'x'}"#, #"{"a":"x",}"#, #"{"a":"x"}{}"#, #"{"a":"x" "b":1}"#, #"{"a":[1,]}"#,
        #"{"a":[,1]}"#,
        #"{"a":[1}"#, #"{"a":{"b":1]}"#, #"{"a":[1 2]}"#, #"{"a":{"b"}}"#, #"{"a":{1:2}}"#, #"{"a":"\x"}"#,
        #"{"a":"\u12"}"#,
        #"{"a":"\u12g4"}"#, #"{"a":"\"#, "{\"a\":\"\n\"}", "{\"a\":\"\u{0}\"}", #"{"a":tru}"#, #"{"a":nul"#,
        #"{"a":TRUE}"#,
        #"{"a":01}"#, #"{"a":+1}"#, #"{"a":.5}"#, #"{"a":1.}"#, #"{"a":1e}"#, #"{"a":-}"#, #"{"a":NaN}"#, #"{"a":0x1}"#,
        #"{"a":Infinity}"#, #"{"a":"x","a":"y"}"#, #"{"a":"x","\u0061":"y"}"#, #"{"a":1,"b":2,"b":"y"}"#,
        "{\"c\":\(nested(65))}", "{\"a\":\(nested(65, "{\"b\":", "}"))}",
    ])
    func `F65: invalid objects, repeated members and deep nesting are rejected`(json: String) {
        Self.object(json) { #expect($0 == nil) }
    }

    @Test(arguments: ["[", "{\"a\":", "[{\"a\":", "[[],", "{\"a\":[", "{\"c\":{\"a\":0,\"b\":"])
    func `F65: unterminated nesting is rejected at any depth`(begin: String) {
        for count in [63, 64, 65, 66, 127, 128, 129, 511, 512, 513, 514, 1_023, 1_025, 100_000] {
            let open = String(repeating: begin, count: count)
            Self.object(open) { #expect($0 == nil) }
            Self.object("{\"c\":" + open) { #expect($0 == nil) }
        }
    }

    @Test(
        arguments: [
            ("60", 60), ("-1", -1), ("0", 0), ("-0", 0), ("59.9", 59.9), ("1e3", 1_000), ("1E+3", 1_000),
            ("1e999", .infinity),
            ("-1e999", -.infinity), ("1e-999", 0), ("\"60\"", 60), ("\"59.9\"", 59.9), ("\"soon\"", nil), ("\"\"", nil),
            ("\"nan\"", nil), ("\"inf\"", nil), ("\"0x10\"", nil), ("\" 60\"", nil), ("\"60 \"", nil), ("[60]", nil),
            ("true", nil),
            ("null", nil), (String(repeating: "9", count: 60_000), .infinity),
            ("0." + String(repeating: "0", count: 60_000) + "1", 0),
        ] as [(String, Double?)])
    func `F65: numbers and strings that contain one are read`(value: String, number: Double?) {
        Self.object("{\"a\":\(value)}") { object in
            #expect(object?.number("a") == number)
        }
    }

    @Test func `F65: truncated objects are rejected, and changed bytes cause no trap`() {
        let whole = Array(
            #"{"a":"x\u0041\n","c":[{"d":[-1.5e+3,true,{"b":"\ud800é"}]},[],{}],"b":3600,"e":null} "#.utf8)
        Self.object(whole) { #expect($0?.number("b") == 3_600) }
        for count in 0..<whole.count - 1 {
            Self.object(Array(whole[..<count])) { #expect($0 == nil, "\(count) bytes") }
        }
        for index in whole.indices {
            for byte in UInt8.min...UInt8.max {
                var changed = whole
                changed[index] = byte
                Self.object(changed) { object in
                    _ = object?.withText("a") { $0.count }
                    _ = object?.number("b")
                }
            }
        }
    }

    @Test func `F65: output of JSONSerialization is read correctly`() throws {
        var dice = SeededRandom(seed: 65)
        for _ in 0..<2_000 {
            let (text, number) = (Self.drawnText(&dice), Int64.random(in: -10_000...10_000, using: &dice))
            let value: [String: Any] = [
                "a": text, "b": number, "c": Self.drawn(depth: 8, &dice), "d": ["a": 1, "b": "y"],
            ]
            let options: JSONSerialization.WritingOptions = Bool.random(using: &dice) ? [.prettyPrinted] : []
            let json = [UInt8](try JSONSerialization.data(withJSONObject: value, options: options))
            Self.object(json) { object in
                #expect(object?.withText("a") { String(decoding: $0, as: UTF8.self) } == text)
                #expect(object?.number("b") == Double(number))
            }
        }
    }

    private static func drawnText(_ dice: inout SeededRandom) -> String {
        let characters = (0..<Int.random(in: 0...20, using: &dice)).map { _ in UInt8.random(in: 0...0x7F, using: &dice)
        }
        return String(decoding: characters, as: UTF8.self)
    }

    private static func drawn(depth: Int, _ dice: inout SeededRandom) -> Any {
        switch Int.random(in: 0...(depth > 0 ? 6 : 4), using: &dice) {
        case 0: drawnText(&dice)
        case 1: "\u{e9}\u{1F600}"
        case 2: Double.random(in: -1e300...1e300, using: &dice)
        case 3: NSNull()
        case 4: Bool.random(using: &dice)
        case 5: (0..<3).map { _ in drawn(depth: depth - 1, &dice) }
        default: ["a": drawn(depth: depth - 1, &dice), "": drawn(depth: depth - 1, &dice)]
        }
    }
}
