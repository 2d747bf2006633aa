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
        (["explain", "alice", "bob"], ["EXPLAIN", "alice", "bob"]),
        (["explain", "alice", "bob", "--size", "64"], ["EXPLAIN", "alice", "bob", "SIZE", "64"]),
        (["get", "alice", "bob", "--wait", "2"], ["GET", "alice", "bob", "WAIT", "2000"]),
        (["get", "alice", "bob", "--wait", "1m"], ["GET", "alice", "bob", "WAIT", "60000"]),
        (["info", "Memory", "all"], ["INFO", "Memory", "all"]),
        (["users"], ["USERS"]),
        (["info"], ["INFO"]),
        (["info", "memory", "store"], ["INFO", "memory", "store"]),
        (["metrics"], ["METRICS"]),
        (["ping"], ["PING"]),
    ])
    func `each command line sends the expected request`(_ arguments: [String], _ request: [String]) throws {
        let run = try Thumbcachectl.run(arguments, against: FakeDaemon(replies: ["+OK\r\n"]))
        #expect(run.requests == [request])
    }

    @Test func `an image is sent unchanged from standard input or a file`() throws {
        let image = Array("\r\n$-1\r\n\0".utf8)
        let daemon = FakeDaemon(replies: ["+OK\r\n"])
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
    func `I11: a token is read from a file or standard input, without its last line break`(
        _ content: String, _ token: String
    ) throws {
        let daemon = FakeDaemon(replies: ["+OK\r\n"])
        let piped = try Thumbcachectl.run(
            ["login", "alice", "--token-file", "-"], input: Array(content.utf8), against: daemon)
        #expect(piped.requests == [["LOGIN", "alice", "TOKEN", token]])

        try Fixture.withDirectory { directory in
            try Data(content.utf8).write(to: URL(filePath: "\(directory)/token"))
            let run = try Thumbcachectl.run(["login", "alice", "--token-file", "\(directory)/token"], against: daemon)
            #expect(run.requests == [["LOGIN", "alice", "TOKEN", token]])
        }
    }

    @Test func `I11: a refresh token is read from a file, with or without an access token`() throws {
        let daemon = FakeDaemon(replies: ["+OK\r\n"])
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

    @Test func `an endless token file is read up to the limit`() throws {
        let run = try Thumbcachectl.run(["login", "alice", "--token-file", "/dev/zero"])
        #expect(run.status == 2)
        #expect(run.errors == "thumbcachectl: /dev/zero is too large for a token; at most 1048576 bytes are accepted\n")
    }

    @Test func `--socket is accepted before and after the command`() throws {
        try Fixture.withDirectory { directory in
            for arguments in [["--socket", "\(directory)/s", "ping"], ["ping", "--socket", "\(directory)/s"]] {
                let run = try Thumbcachectl.run(arguments, environment: ["THUMBCACHED_SOCKET": "/other"])
                #expect(run.errors.contains("no daemon at \(directory)/s:"))
            }
        }
    }
}
