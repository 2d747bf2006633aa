import LinuxSupport
import Testing

@Suite struct SpellingTests {
    @Test(arguments: [
        ("docter", "doctor"), ("logn", "login"), ("loguot", "logout"), ("ge", "get"), ("put", "put"),
        ("nothing", nil), ("", nil),
    ])
    func `a word that is two letters away at most may have been meant`(_ word: String, _ meant: String?) {
        #expect(closestWord(to: word, among: ["login", "logout", "get", "put", "doctor"]) == meant)
    }

    @Test(arguments: [("war", "warning"), ("cri", nil), ("wa", nil), ("warningly", "warning")])
    func `an abbreviation means what alone begins with it`(_ word: String, _ meant: String?) {
        #expect(closestWord(to: word, among: ["warning", "critical", "criterion"]) == meant)
    }
}
