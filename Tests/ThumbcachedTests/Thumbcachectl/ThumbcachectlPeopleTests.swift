import Foundation
import Testing

@testable import thumbcachectl

/// Output that is formatted for people.
@Suite struct ThumbcachectlPeopleTests {
    @Test func `colors and cursor control are used only on terminals that support them`() {
        func terminal(_ isTerminal: Bool, _ variables: [String: String]) -> [Bool] {
            let terminal = Terminal(1, isTerminal: isTerminal) { variables[$0] }
            return [terminal.hasCursor, terminal.hasColor]
        }
        #expect(terminal(true, ["TERM": "xterm"]) == [true, true])
        #expect(terminal(true, ["TERM": "xterm", "NO_COLOR": "1"]) == [true, false])
        #expect(terminal(true, ["TERM": "xterm", "NO_COLOR": ""]) == [true, true])
        #expect(terminal(true, ["TERM": "dumb"]) == [false, false])
        #expect(terminal(true, [:]) == [false, false])
        #expect(terminal(false, ["TERM": "xterm"]) == [false, false])
    }

    @Test(arguments: [
        (0, "0 s"), (59, "59 s"), (60, "1 min"), (61, "1 min 1 s"), (3_600, "1 h"), (3_661, "1 h 1 min"),
        (90_000, "1 d 1 h"), (-61, "-1 min 1 s"),
    ])
    func `a duration has its two largest units`(_ seconds: Int, _ text: String) {
        #expect(Times.duration(seconds) == text)
    }

    @Test func `seconds are formatted as a duration on a terminal only`() throws {
        let daemon = FakeDaemon(replies: ["%2\r\n$3\r\nage\r\n:3661\r\n$5\r\nepoch\r\n:3661\r\n"])
        let shown = try Thumbcachectl.run(["stat", "alice", "bob"], terminal: true, against: daemon)
        #expect(shown.text == "age    1 h 1 min\nepoch  3661\n")
        let piped = try Thumbcachectl.run(["stat", "alice", "bob"], against: daemon)
        #expect(piped.text == "age 3661\nepoch 3661\n")
    }

    @Test func `metrics are escaped on a terminal and unchanged in a pipe`() throws {
        let text = "# HELP a \u{1b}[2J\na{b=\"\\\\c\"} 1.5\n"
        let daemon = FakeDaemon(replies: ["$\(text.utf8.count)\r\n\(text)\r\n"])
        #expect(try Thumbcachectl.run(["metrics"], against: daemon).text == text)
        let shown = try Thumbcachectl.run(["metrics"], terminal: true, against: daemon).text
        #expect(shown == "# HELP a \\x1b[2J\na{b=\"\\\\\\\\c\"} 1.5\n")
        let json = try Thumbcachectl.run(["metrics", "--json"], against: daemon).text
        #expect(json == "[{\"name\":\"a\",\"labels\":{\"b\":\"\\\\c\"},\"value\":1.5}]\n")
    }

    @Test func `the error for a plain file does not suggest to start a daemon`() throws {
        let run = try Thumbcachectl.run(["--socket", "/etc/passwd", "ping"])
        #expect(run.status == 3)
        #expect(run.errors.hasPrefix("thumbcachectl: /etc/passwd is not a socket; name"))
    }

    @Test func `the progress bar fits the terminal`() {
        #expect(ProgressLine.bar(1, of: 2, columns: 20) == "[#####.....] 1 of 2")
        #expect(ProgressLine.bar(2, of: 2, columns: 10) == "2 of 2")
        #expect(ProgressLine.bar(100, of: 100, columns: 200).count == 63)
    }
}
