import Foundation
import Testing
import ThumbcacheProtocol

@_spi(Wire) @testable import Thumbcache
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
        (90_000, "1 d 1 h"), (-61, "-1 min 1 s"), (.min, "-106751991167300 d 15 h"),
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

    /// The lines of an explanation with these keys; the others are null. `from` is put if an image is held.
    private func explained(_ keys: [String: Value]) throws -> [String] {
        func text(_ text: String) -> Value { .simpleString(text) }
        var values = keys
        if values["held"] != nil { values["from"] = text("put") }
        let map = ExplainKey.allCases.flatMap { [text($0.rawValue), values[$0.rawValue] ?? .null] }
        return ExplanationText(explanation: try ImageExplanation(.map(map)), purge: "PURGE", now: 100_000).lines
    }

    static let sentences: [(keys: [String: String], line: String)] = [
        (["action": "serve", "held": "memory", "state": "fresh"], "Get returns the image held in memory."),
        (
            ["action": "serve", "held": "disk", "state": "stale"],
            "Get returns the stale image held on disk."
        ),
        (["action": "serve"], "Get returns the source, which cannot be rendered now."),
        (
            ["action": "revalidate"],
            "Get requests the image again, and returns the stale image's rendition if the origin fails."
        ),
        (
            ["action": "none", "held": "disk", "state": "expired"],
            "The image held on disk is too old, and the user has no origin."
        ),
        (
            ["action": "refresh", "held": "memory", "state": "stale"],
            "Get returns the stale image held in memory, and requests the image again in the background."
        ),
        (
            ["action": "revalidate", "held": "disk", "state": "stale"],
            "Get requests the image again, and returns the stale image held on disk if the origin fails."
        ),
        (["action": "download"], "No image is held: get requests it from the origin."),
        (["action": "wait"], "Get waits for a download in flight."),
        (["action": "render"], "Get renders the image from its source."),
        (["action": "none"], "No image is held, and the user has no origin."),
        (["action": "none", "origin": "default"], "The origin has no image."),
        (["action": "fail", "error": "ORIGIN \u{1b}[2J"], "Get fails: ORIGIN \\x1b[2J."),
        (["action": "sing"], "Get does something that this version of thumbcachectl does not know."),
    ]

    @Test(arguments: sentences)
    func `an explanation begins with what get does`(_ row: (keys: [String: String], line: String)) throws {
        var keys = row.keys.mapValues { Value.simpleString($0) }
        if keys["held"] != nil { keys["age"] = .integer(40) }
        #expect(try explained(keys).first == row.line)
    }

    @Test func `an explanation names upstreams, times and the source`() throws {
        func upstream(_ host: String, _ state: String, _ age: Int?, _ retryIn: Int?) -> Value {
            .map([
                .simpleString("host"), .simpleString("https://\(host).test"), .simpleString("state"),
                .simpleString(state), .simpleString("age"), age.map { .integer($0) } ?? .null,
                .simpleString("retry-in"), retryIn.map { .integer($0) } ?? .null,
            ])
        }
        let lines = try explained([
            "action": .simpleString("download"), "origin": .simpleString("work"), "waiting": .integer(2),
            "upstreams": .array([
                upstream("a", "missing", 40, 260), upstream("b", "suspended", nil, 3), upstream("c", "ready", nil, nil),
                upstream("d", "ready", nil, nil), upstream("e", "unauthorized", nil, nil),
            ]),
        ])
        #expect(
            lines.dropFirst() == [
                "Origin work, https://a.test: had no image 40 s ago; the next request is in 4 min 20 s, or after a purge.",
                "Origin work, https://b.test: failed, so its circuit breaker is open; the next request is in 3 s.",
                "Origin work, https://c.test: is requested next.",
                "Origin work, https://d.test: is requested if the upstreams before it have no image.",
                "Origin work, https://e.test: needs an access token, which could not be refreshed.",
                "Requests that wait for the download in flight: 2.",
            ])
    }
}
