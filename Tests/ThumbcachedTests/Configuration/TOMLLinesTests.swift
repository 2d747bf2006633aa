import Testing

@testable import thumbcached

@Suite struct TOMLLinesTests {
    @Test func `each key is found on the line it stands on`() throws {
        let text = #"""
            # [not.a.section]
            a = 1 # b = 2
            "quoted \" key" = 'c = 3'
            long = """
            d = 4
            \""" e = 5 """""
            literal = '''
            [f]
            '''
            list = [ # g = 6
              "x", # ]
              [ 'y]' ],
              { h = 7,
                i = "}" },
            ]
            [ section . "sub.sub" ] # j
            k.l = { m = 8, n.o = [1] }
            [section.next]
            p = 2024-01-01T00:00:00Z
            [[tables]]
            q = 1
            """#
        let lines = try TOMLLines(text)
        let expected: [([String], Int)] = [
            (["a"], 2), (["quoted \\\" key"], 3), (["long"], 4), (["literal"], 7), (["list"], 10),
            (["list", "[0]"], 11), (["list", "[1]"], 12), (["list", "[1]", "[0]"], 12), (["list", "[2]", "h"], 13),
            (["list", "[2]", "i"], 14), (["section"], 16), (["section", "sub.sub"], 16),
            (["section", "sub.sub", "k", "l", "m"], 17), (["section", "sub.sub", "k", "l", "n", "o"], 17),
            (["section", "next"], 18), (["section", "next", "p"], 19), (["tables"], 20), (["tables", "q"], 21),
        ]
        for (path, line) in expected { #expect(lines[path] == line, "\(path)") }
        for path in [["b"], ["c"], ["d"], ["e"], ["f"], ["g"], ["j"], ["not"]] { #expect(lines[path] == nil) }
    }

    @Test(arguments: [
        "", "=", "]", "}", "a = [", "a = {", "a = \"", "a = '''", "\\", "a.", "a = [[[{{{", ",,,", "a = [=.\"",
        "a = {]}", "\"", "[\"", "a={b={c=", "\r\r\r", "a = \"\\", "[", "[]", "[[",
    ])
    func `what is no TOML ends the scan`(_ text: String) throws {
        #expect(try TOMLLines(text)[["nothing"]] == nil)
    }

    @Test func `a byte order mark is no part of the first key`() throws {
        #expect(try TOMLLines("\u{feff}a = 1")[["a"]] == 1)
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
