import LinuxSupport
import Testing

@Suite struct SpellingTests {
    @Test(arguments: [
        ("docter", "doctor"), ("logn", "login"), ("loguot", "logout"), ("ge", "get"), ("put", "put"),
        ("nothing", nil), ("", nil),
    ])
    func `a word at an edit distance of at most 2 is suggested`(_ word: String, _ meant: String?) {
        #expect(closestWord(to: word, among: ["login", "logout", "get", "put", "doctor"]) == meant)
    }

    @Test(arguments: [("war", "warning"), ("cri", nil), ("wa", nil), ("warningly", "warning")])
    func `an unambiguous abbreviation is completed`(_ word: String, _ meant: String?) {
        #expect(closestWord(to: word, among: ["warning", "critical", "criterion"]) == meant)
    }
}
