import Foundation
import Testing

@Suite struct ThumbcachectlExitStatusTests {
    @Test(arguments: [
        (["login", "alice"], "+OK\r\n"),
        (["logout", "alice"], "%1\r\n$5\r\nusers\r\n:1\r\n"),
        (["purge", "alice"], "%1\r\n$5\r\nusers\r\n:1\r\n"),
        (["get", "alice", "bob"], "$3\r\nimg\r\n"),
        (["stat", "alice"], "%1\r\n$6\r\nimages\r\n:1\r\n"),
        (["users"], "*0\r\n"),
        (["info"], "$2\r\n\r\n\r\n"),
        (["ping"], "+PONG\r\n"),
    ])
    func `status 0 on success`(_ arguments: [String], _ reply: String) throws {
        let run = try Thumbcachectl.run(arguments, against: FakeDaemon(replies: [reply]))
        #expect(run.status == 0)
        #expect(run.errors == "")
    }

    @Test(arguments: [
        ["login", "alice"], ["logout", "alice"], ["purge", "alice"], ["get", "alice", "bob"], ["stat", "alice"],
        ["users"], ["info"], ["ping"], ["put", "alice", "bob", "-"],
    ])
    func `status 1 on an error reply, printed on stderr`(_ arguments: [String]) throws {
        let daemon = FakeDaemon(replies: ["-IOERR the store\u{1b}[2J is full\r\n"])
        let run = try Thumbcachectl.run(arguments, input: [1], against: daemon)
        #expect(run.status == 1)
        #expect(run.text == "")
        #expect(run.errors == "thumbcachectl: IOERR the store\\x1b[2J is full\n")
    }

    @Test func `status 1 if the daemon refuses the connection`() throws {
        let run = try Thumbcachectl.run(["ping"], against: FakeDaemon(hello: "-BUSY try again\r\n"))
        #expect(run.status == 1)
        #expect(run.errors == "thumbcachectl: BUSY try again\n")
    }

    @Test func `status 1 if the daemon rejects an image while it is being sent`() throws {
        let daemon = FakeDaemon(replies: ["-TOOLARGE at most 5 bytes\r\n"], refusesAfter: 1 << 16)
        let image = [UInt8](repeating: 7, count: 4 << 20)
        let run = try Thumbcachectl.run(["put", "alice", "bob", "-"], input: image, against: daemon)
        #expect(run.status == 1)
        #expect(run.errors == "thumbcachectl: TOOLARGE at most 5 bytes\n")
    }

    @Test(arguments: [
        [], ["nonsense"], ["--nonsense"], ["get"], ["get", "alice"], ["get", "alice", "bob", "--size", "0"],
        ["get", "alice", "bob", "--size", "4097"], ["get", "alice", "bob", "--size", "big"], ["get", "*", "bob"],
        ["put", "alice", "bob"], ["put", "alice", "bob", "/nonexistent"], ["put", "alice", "bob", "/"],
        ["put", "alice", "bob", "-"], ["put", "alice", "bob", "-", "--ttl", "0"], ["login"], ["login", "*"],
        ["login", "alice", "--token", "secret"], ["login", "alice", "--token-file", "/nonexistent"],
        ["login", "alice", "--token-file", "-"], ["login", "alice", "--token-file", "-", "--refresh-token-file", "-"],
        ["logout"], ["logout", "*"], ["logout", "alice", "--all"], ["logout", "alice", "--pending", "/tmp"],
        ["logout", "--all", "--session", "s", "--pending", "/tmp"], ["logout", "--all", "--pending", ""],
        ["logout", "--all", "--timeout", "0"], ["logout", "--all", "--timeout", "86401"], ["clear-pending"],
        ["logout", "alice", "--uid", "-1"], ["logout", "alice", "--uid", "4294967296"], ["purge"],
        ["purge", "alice", "--all"], ["stat"], ["users", "alice"], ["ping", "hello"],
        ["stat", "alice", "--size", "64"], ["get", "alice", "bob", "--wait", "601"], ["metrics", "x"], ["warm"],
        ["warm", "alice"], ["warm", "alice", "bob", "--from", "x"], ["warm", "alice", "--from", "/nonexistent"],
        ["warm", "alice", "-"], ["warm", "alice", ""], ["watch", "--count", "0"],
        ["verify", "alice"], ["verify", "--uid", "1"], ["verify", "--user", ""], ["verify", "--user", "*"],
        ["verify", "--cache-directory", "relative"], ["verify", "--state-directory", ""],
        ["info", "bogus"], ["put", "alice", "bob", "-", "--ttl", "1w"], ["put", "alice", "bob", "-", "--ttl", "500ms"],
        ["logout", "alice", "--timeout", "soon"], ["get", "alice", "bob", "--fit", "stretch"],
        ["--socket", "", "ping"], ["--socket", String(repeating: "x", count: 108), "ping"],
    ])
    func `status 2 on an invalid command line`(_ arguments: [String]) throws {
        let run = try Thumbcachectl.run(arguments, environment: ["THUMBCACHED_SOCKET": "/nonexistent"])
        #expect(run.status == 2)
        #expect(run.text == "")
        // Errors of ArgumentParser have the same format; without a command, the help is printed.
        if !arguments.isEmpty {
            #expect(run.errors.hasPrefix("thumbcachectl: "), "\(run.errors)")
            #expect(run.errors.dropFirst("thumbcachectl: ".count).first?.isUppercase == false, "\(run.errors)")
        }
        #expect(run.errors != "")
    }

    @Test(arguments: [
        ["--help"], ["-h"], ["help"], ["help", "get"], ["get", "--help"], ["login", "--help"], ["logout", "--help"],
        ["put", "--help"], ["purge", "--help"], ["stat", "--help"], ["users", "--help"], ["info", "--help"],
        ["ping", "--help"], ["metrics", "--help"], ["watch", "--help"], ["warm", "--help"], ["verify", "--help"],
        ["--version"],
    ])
    func `status 0 for help and version, on standard output`(_ arguments: [String]) throws {
        let run = try Thumbcachectl.run(arguments)
        #expect(run.status == 0)
        #expect(run.errors == "")
        #expect(run.text.contains("thumbcachectl"))
    }

    @Test func `status 3 if the socket does not exist, with a remedy`() throws {
        let run = try Thumbcachectl.run(["--socket", "/nonexistent/s", "ping"])
        #expect(run.status == 3)
        #expect(
            run.errors == "thumbcachectl: no daemon at /nonexistent/s: the socket does not exist; "
                + "start it (systemctl start thumbcached, or run thumbcached for your user alone), "
                + "or name its socket with --socket or THUMBCACHED_SOCKET\n")
    }

    @Test(arguments: [["verify"], ["verify", "--user", "alice"], ["verify", "--json"]])
    func `status 3 if the store cannot be read, with the reason`(_ arguments: [String]) throws {
        let run = try Thumbcachectl.run(
            arguments + ["--cache-directory", "/nonexistent", "--state-directory", "/nonexistent/\u{1b}"])
        #expect(run.status == 3)
        #expect(run.text == "")
        #expect(
            run.errors == "thumbcachectl: the state directory /nonexistent/\\x1b cannot be opened: "
                + "openat: ENOENT (No such file or directory)\n")
    }

    @Test func `status 3 if no process listens, with a remedy`() throws {
        try Fixture.withDirectory { directory in
            close(try UnixSocket.listen("\(directory)/s"))
            let run = try Thumbcachectl.run(["ping", "--socket", "\(directory)/s"])
            #expect(run.status == 3)
            #expect(run.errors.contains("no process listens at this socket; start it"))
        }
    }

    @Test(arguments: [
        (
            FakeDaemon(hello: "%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n"),
            "is not thumbcached (its HELLO says redis)"
        ),
        (FakeDaemon(hello: "SSH-2.0-x\r\n"), "does not speak the protocol of thumbcached"),
        (FakeDaemon(replies: []), "closed the connection before responding"),
    ])
    func `status 3 if the server is not thumbcached or does not respond`(_ daemon: FakeDaemon, _ reason: String) throws
    {
        let run = try Thumbcachectl.run(["ping"], against: daemon)
        #expect(run.status == 3)
        #expect(run.errors.contains(reason))
    }

    @Test(arguments: [
        (["get", "alice", "bob"], "_\r\n"),
        (["get", "alice", "bob", "--meta"], "_\r\n"),
        (["get", "alice", "bob"], "$-1\r\n"),
        (["get", "alice", "bob", "--cached"], "_\r\n"), (["get", "alice", "bob", "--no-wait"], "_\r\n"),
        (["stat", "alice", "bob"], "_\r\n"),
        (["stat", "alice"], "*-1\r\n"),
    ])
    func `status 4 if there is no image`(_ arguments: [String], _ reply: String) throws {
        var daemon = FakeDaemon(replies: [reply])
        // A daemon that does not know EXPLAIN.
        if arguments[0] == "get" { daemon.furtherConnections = [["-ERR unknown command 'EXPLAIN', see COMMAND\r\n"]] }
        let run = try Thumbcachectl.run(arguments, against: daemon)
        #expect(run.status == 4)
        #expect(run.text == "")
        #expect(run.errors != "")
        if arguments[0] == "get" {
            #expect(run.errors.contains("none is cached") || run.errors.contains("neither the cache nor the origin"))
        }

        let json = try Thumbcachectl.run(arguments + ["--json"], against: daemon)
        #expect(json.status == 4)
        #expect(json.text == "null\n")
    }
}
