import Foundation
import Testing

@Suite struct ThumbcachectlRequestTests {
    static let receipt = "%1\r\n$5\r\nusers\r\n:1\r\n"

    @Test(arguments: [
        (["login", "alice"], ["LOGIN", "alice"]),
        (
            ["login", "alice", "--session", "s1", "--origin", "work"],
            ["LOGIN", "alice", "SESSION", "s1", "ORIGIN", "work"]
        ),
        (["logout", "alice"], ["LOGOUT", "alice"]),
        (["logout", "--all", "--uid", "1000"], ["LOGOUT", "*", "UID", "1000"]),
        (["logout", "alice", "--session", "s1"], ["LOGOUT", "alice", "SESSION", "s1"]),
        (["logout", "alice", "--all-uids"], ["LOGOUT", "alice", "UID", "*"]),
        (["logout", "--all", "--all-uids"], ["LOGOUT", "*", "UID", "*"]),
        (["purge", "alice", "bob", "--all-uids"], ["PURGE", "alice", "1", "bob", "UID", "*"]),
        (["purge", "alice"], ["PURGE", "alice"]),
        (["purge", "--all"], ["PURGE", "*"]),
        (["purge", "alice", "bob", "UID", "--uid", "7"], ["PURGE", "alice", "2", "bob", "UID", "UID", "7"]),
        (["purge", "alice", "--", "--all"], ["PURGE", "alice", "1", "--all"]),
        (["get", "alice", "bob"], ["GET", "alice", "bob"]),
        (
            ["get", "alice", "bob", "--size", "64", "--url", "https://a/b", "--cached"],
            ["GET", "alice", "bob", "SIZE", "64", "URL", "https://a/b", "CACHED"]
        ),
        (["get", "alice", "bob", "--meta"], ["GET", "alice", "bob", "META"]),
        (["get", "alice", "--", "-x"], ["GET", "alice", "-x"]),
        (["get", "alice", "a b\n\\"], ["GET", "alice", "a b\n\\"]),
        (["stat", "alice"], ["STAT", "alice"]),
        (["stat", "alice", "bob"], ["STAT", "alice", "bob"]),
        (["stat", "alice", "bob", "--size", "64"], ["STAT", "alice", "bob", "SIZE", "64"]),
        (["get", "alice", "bob", "--wait", "2"], ["GET", "alice", "bob", "WAIT", "2000"]),
        (["get", "alice", "bob", "--wait", "1m"], ["GET", "alice", "bob", "WAIT", "60000"]),
        (["info", "Memory", "all"], ["INFO", "Memory", "all"]),
        (["users"], ["USERS"]),
        (["info"], ["INFO"]),
        (["info", "memory", "store"], ["INFO", "memory", "store"]),
        (["metrics"], ["METRICS"]),
        (["ping"], ["PING"]),
    ])
    func `each command line asks for what it says`(_ arguments: [String], _ request: [String]) throws {
        let run = try Thumbcachectl.run(arguments, against: PlayedDaemon(replies: ["+OK\r\n"]))
        #expect(run.requests == [request])
    }

    @Test func `an image is sent as it is, from standard input or a file`() throws {
        let image = Array("\r\n$-1\r\n\0".utf8)
        let daemon = PlayedDaemon(replies: ["+OK\r\n"])
        let piped = try Thumbcachectl.run(
            ["put", "alice", "bob", "-", "--size", "64", "--ttl", "1d"], input: image, against: daemon)
        #expect(piped.status == 0)
        #expect(piped.requests == [["PUT", "alice", "bob", "\r\n$-1\r\n\0", "SIZE", "64", "TTL", "86400"]])

        try Fixture.withDirectory { directory in
            try Data(image).write(to: URL(filePath: "\(directory)/image"))
            let run = try Thumbcachectl.run(["put", "alice", "bob", "\(directory)/image"], against: daemon)
            #expect(run.requests == [["PUT", "alice", "bob", "\r\n$-1\r\n\0"]])
        }
    }

    @Test(arguments: [("secret\n", "secret"), ("secret\r\n", "secret"), ("secret", "secret"), ("se\ncret", "se\ncret")])
    func `I11: a token comes from a file or standard input, without its last line break`(
        _ content: String, _ token: String
    ) throws {
        let daemon = PlayedDaemon(replies: ["+OK\r\n"])
        let piped = try Thumbcachectl.run(
            ["login", "alice", "--token-file", "-"], input: Array(content.utf8), against: daemon)
        #expect(piped.requests == [["LOGIN", "alice", "TOKEN", token]])

        try Fixture.withDirectory { directory in
            try Data(content.utf8).write(to: URL(filePath: "\(directory)/token"))
            let run = try Thumbcachectl.run(["login", "alice", "--token-file", "\(directory)/token"], against: daemon)
            #expect(run.requests == [["LOGIN", "alice", "TOKEN", token]])
        }
    }

    @Test func `I11: a refresh token comes from a file too, beside the access token or alone`() throws {
        let daemon = PlayedDaemon(replies: ["+OK\r\n"])
        try Fixture.withDirectory { directory in
            try Data("renew\n".utf8).write(to: URL(filePath: "\(directory)/refresh"))
            let arguments = ["login", "alice", "--refresh-token-file", "\(directory)/refresh"]
            #expect(
                try Thumbcachectl.run(arguments, against: daemon).requests == [["LOGIN", "alice", "REFRESH", "renew"]])
            let both = try Thumbcachectl.run(
                arguments + ["--token-file", "-"], input: Array("access\n".utf8), against: daemon)
            #expect(both.requests == [["LOGIN", "alice", "TOKEN", "access", "REFRESH", "renew"]])
        }
    }

    @Test func `a token that never ends is not read to the end`() throws {
        let run = try Thumbcachectl.run(["login", "alice", "--token-file", "/dev/zero"])
        #expect(run.status == 2)
        #expect(run.errors == "thumbcachectl: /dev/zero has more than 1048576 bytes; that is too much for a token\n")
    }

    @Test func `the socket may be named before or behind the command`() throws {
        try Fixture.withDirectory { directory in
            for arguments in [["--socket", "\(directory)/s", "ping"], ["ping", "--socket", "\(directory)/s"]] {
                let run = try Thumbcachectl.run(arguments, environment: ["THUMBCACHED_SOCKET": "/other"])
                #expect(run.errors.contains("no daemon at \(directory)/s:"))
            }
        }
    }
}
