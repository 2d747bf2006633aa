import Foundation
import Testing
@_spi(Wire) import Thumbcache

@testable import thumbcachectl

@Suite struct ThumbcachectlWatchTests {
    static let confirmation = ">3\r\n$9\r\nsubscribe\r\n$5\r\nalice\r\n:1\r\n"

    static func message(_ text: String) -> String {
        ">3\r\n$7\r\nmessage\r\n$5\r\nalice\r\n$\(text.utf8.count)\r\n\(text)\r\n"
    }

    /// The lines without their times.
    private func events(in text: String) -> [String] {
        text.split(separator: "\n").map { $0.split(separator: " ", maxSplits: 2).last.map(String.init) ?? "" }
    }

    @Test func `each event is one line`() throws {
        let messages = ["login 4096", "update 4096 b\u{1b}[2J c", "purge 4097 bob", "logout 4098"]
        let daemon = FakeDaemon(
            replies: ["+PONG\r\n"],
            furtherConnections: [[Self.confirmation + messages.map(Self.message).joined()]])
        let run = try Thumbcachectl.run(["watch", "alice", "--count", "4"], against: daemon)
        #expect(run.status == 0)
        #expect(run.errors == "")
        #expect(run.requests == [["PING"], ["SUBSCRIBE", "alice"]])
        #expect(
            events(in: run.text) == [
                "watching", "login alice", "update alice b\\x1b[2J c", "purge alice bob", "logout alice",
            ])
    }

    @Test func `a lost connection is reported`() {
        let line = EventLine(.gap, at: Times.Moment(seconds: 1_700_000_000, milliseconds: 7))
        #expect(line.text.hasSuffix(" lost (connection closed or too many events); events may be missed"))
        #expect(!line.isEvent)
    }

    @Test func `without a user, or with '*', all users are watched`() throws {
        for arguments in [["watch"], ["watch", "*"], ["watch", "bob", "*"]] {
            let daemon = FakeDaemon(
                replies: ["+PONG\r\n"],
                furtherConnections: [[">3\r\n$9\r\nsubscribe\r\n$1\r\n*\r\n:1\r\n" + Self.message("login 1")]])
            let run = try Thumbcachectl.run(arguments + ["--count", "1"], against: daemon)
            #expect(run.requests.last == ["SUBSCRIBE", "*"])
        }
    }

    @Test func `an event is one JSON object`() {
        let moment = Times.Moment(seconds: 1_700_000_000, milliseconds: 7)
        func json(_ event: ThumbcacheEvent) -> String { EventLine(event, at: moment).json }
        let time = "{\"time\":\"2023-11-14T22:13:20.007Z\",\"event\":"
        #expect(json(.subscribed) == time + "\"watching\"}")
        #expect(json(.gap) == time + "\"lost\"}")
        #expect(json(.login(user: "a\"b", epoch: 7)) == time + "\"login\",\"user\":\"a\\\"b\",\"epoch\":7}")
        #expect(json(.purge(user: "a", profile: nil, epoch: 7)) == time + "\"purge\",\"user\":\"a\",\"epoch\":7}")
        #expect(
            json(.update(user: "a", profile: ThumbcacheID(bytes: [0xff]), epoch: 7))
                == time + "\"update\",\"user\":\"a\",\"profile\":{\"base64\":\"/w==\"},\"epoch\":7}")
    }
}
