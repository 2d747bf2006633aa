import Testing

@testable import thumbcached

@Suite struct TOMLGuardTests {
    @Test(arguments: [
        "", "=", "]", "}", "a = [", "a = {", "a = \"", "a = '''", "\\", "a.", "a = [[[{{{", ",,,", "a = [=.\"",
        "a = {]}", "\"", "[\"", "a={b={c=", "\r\r\r", "a = \"\\", "[", "[]", "[[",
    ])
    func `what is no TOML ends the scan`(_ text: String) throws {
        try TOMLGuard.check(text)
    }

    @Test func `a byte order mark is no part of the first key`() throws {
        #expect(try Fixture.decode("\u{feff}threads = 2").threads == 2)
    }

    @Test(arguments: [
        "[#", "[\n]", "[[[a]]]", "[=", "[.", "[é]", "\u{feff}[#", "a = '''\n[#'''\n[[#", "[\u{0b}", "[\retrics]",
    ])
    func `F50: a section without a name is refused, not handed to a parser that dies of it`(_ text: String) {
        let error = #expect(throws: ConfigurationError.self) { try Fixture.decode(text) }
        #expect(error?.description.hasSuffix("not TOML: a section needs a name, as in [limits]") == true)
    }
}
