import ProgramSupport
import Testing

@testable import thumbcached

@Suite struct TOMLGuardTests {
    @Test(arguments: [
        "", "=", "]", "}", "a = [", "a = {", "a = \"", "a = '''", "\\", "a.", "a = [[[{{{", ",,,", "a = [=.\"",
        "\"", "[\"", "a={b={c=", "\r\r\r", "a = \"\\", "[", "[]", "[[",
    ])
    func `the scan of invalid TOML ends`(_ text: String) throws {
        try TOMLGuard.check(text)
    }

    @Test func `a byte order mark is not part of the first key`() throws {
        #expect(try Fixture.decode("\u{feff}threads = 2").threads == 2)
    }

    @Test(arguments: [
        "[#", "[\n]", "[[[a]]]", "[=", "[.", "[é]", "\u{feff}[#", "a = '''\n[#'''\n[[#", "[\u{0b}", "[\retrics]",
    ])
    func `F50: a section without a name, which crashes the parser, is rejected`(_ text: String) {
        let error = #expect(throws: ConfigurationError.self) { try Fixture.decode(text) }
        #expect(error?.description.hasSuffix("not TOML: a section needs a name, as in [limits]") == true)
    }

    @Test(arguments: [
        "a = 1979-05-27T=7:32:00Z", "a = [1979-05-27t:]", "a = { b = 1979-05-27 :07:32 }", "a = 1979-05-27T",
    ])
    func `F50: a date with an invalid time, which crashes the parser, is rejected`(_ text: String) {
        let error = #expect(throws: ConfigurationError.self) { try Fixture.decode(text) }
        let words = "not TOML: a date with a time is written as in 1979-05-27T07:32:00"
        #expect(error?.description.hasSuffix(words) == true)
    }

    @Test(arguments: ["a = [1, }", "a = [}", "a = { b = [[2.5,}?", "a = [ # ]\n }"])
    func `F50: a list closed by a brace, which crashes the parser, is rejected`(_ text: String) {
        let error = #expect(throws: ConfigurationError.self) { try Fixture.decode(text) }
        #expect(error?.description.hasSuffix("not TOML: a list ends with ], not with }") == true)
    }

    @Test(arguments: ["1979-05-27", "1979-05-27T07:32:00", "1979-05-27 07:32:00Z", "1979-05-27 # x", "[1979-05-27 ]"])
    func `a date is left to the parser`(_ date: String) throws {
        try TOMLGuard.check("a = \(date)")
    }
}
