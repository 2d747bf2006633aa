import NIOCore
import Testing

@testable import ThumbcacheProtocol

@Suite struct RefusalTests {
    static let sizing = "[SIZE px] [FIT cover|contain] [FORMAT source|png|jpeg|webp]"
    static let getSyntax =
        "GET user profile \(sizing) [URL url] [WAIT ms] [CACHED|NOWAIT] [IFNOT digest] [META]"
    static let getOptions = "expected SIZE, FIT, FORMAT, URL, WAIT, CACHED, NOWAIT, IFNOT or META"
    static let purgeSyntax = "PURGE user|* [count profile [profile ...]] [UID uid|*]"

    static let refused: [(line: String, message: String)] = [
        // Commands.
        ("FOO bar", "unknown command 'FOO', see COMMAND"),
        (
            "auth secret",
            "AUTH is not supported: the kernel reports the caller's uid; connect without a password"
        ),
        ("SET alice image", "SET is not supported: use PUT user profile image to store an image"),
        ("G\u{1b}T", "unknown command 'G\\x1bT', see COMMAND"),
        (
            "AVERYLONGCOMMANDNAMETHATGOESONANDON",
            "unknown command 'AVERYLONGCOMMANDNAMETHATGOESONAN...', see COMMAND"
        ),
        ("G\u{0}ET alice bob", "unknown command 'G\\x00ET', see COMMAND"),
        // Numbers of arguments.
        ("GET alice", "wrong number of arguments for 'get': \(getSyntax)"),
        ("get", "wrong number of arguments for 'get': \(getSyntax)"),
        (
            "MGET alice 1",
            "wrong number of arguments for 'mget': "
                + "MGET user count profile [profile ...] \(sizing) [WAIT ms] [CACHED|NOWAIT]"
        ),
        ("PUT alice bob", "wrong number of arguments for 'put': PUT user profile image [SIZE px] [TTL seconds]"),
        ("PURGE", "wrong number of arguments for 'purge': \(purgeSyntax)"),
        ("EXPLAIN alice", "wrong number of arguments for 'explain': EXPLAIN user profile \(sizing)"),
        ("EXPLAIN alice bob CACHED", "bad option 'CACHED' for 'explain': expected SIZE, FIT or FORMAT"),
        ("STAT", "wrong number of arguments for 'stat': STAT user [profile \(sizing)]"),
        (
            "LOGIN",
            "wrong number of arguments for 'login': "
                + "LOGIN user [SESSION id] [HOLD] [ORIGIN name] [TOKEN token] [REFRESH token]"
        ),
        ("SUBSCRIBE", "wrong number of arguments for 'subscribe': SUBSCRIBE user|* [user|* ...]"),
        ("WARM alice 1", "wrong number of arguments for 'warm': WARM user count profile [profile ...] \(sizing)"),
        ("WARM alice 1 bob WAIT 5", "bad option 'WAIT' for 'warm': expected SIZE, FIT or FORMAT"),
        ("WARM * 1 bob", "user '*' is reserved: it means every user, and only LOGOUT, PURGE and SUBSCRIBE take it"),
        ("METRICS now", "wrong number of arguments for 'metrics': METRICS"),
        ("LOGOUT", "wrong number of arguments for 'logout': LOGOUT user|* [SESSION id] [UID uid|*]"),
        ("USERS alice", "wrong number of arguments for 'users': USERS"),
        ("PING a b", "wrong number of arguments for 'ping': PING [message]"),
        ("ECHO", "wrong number of arguments for 'echo': ECHO message"),
        ("ECHO a b", "wrong number of arguments for 'echo': ECHO message"),
        ("QUIT now", "wrong number of arguments for 'quit': QUIT"),
        ("RESET now", "wrong number of arguments for 'reset': RESET"),
        ("SELECT", "wrong number of arguments for 'select': SELECT index"),
        (
            "CLIENT",
            "wrong number of arguments for 'client': CLIENT ID|LIST|GETNAME|SETNAME name|SETINFO LIB-NAME|LIB-VER value"
                + "|CAPA name [name ...]"
        ),
        ("COMMAND COUNT x", "wrong number of arguments for 'command|count': COMMAND COUNT"),
        // Options.
        ("GET alice bob CACHED NOWAIT", "bad option 'NOWAIT' for 'get': CACHED and NOWAIT exclude each other"),
        ("MGET alice 1 bob NOWAIT CACHED", "bad option 'CACHED' for 'mget': CACHED and NOWAIT exclude each other"),
        ("GET alice bob TTL 5", "bad option 'TTL' for 'get': \(getOptions)"),
        ("GET alice bob SIZE 5 carol", "bad option (argument 5) for 'get': \(getOptions)"),
        ("GET alice bob carol", "bad option (argument 3) for 'get': \(getOptions)"),
        ("GET alice bob SIZES 5", "bad option (argument 3) for 'get': \(getOptions)"),
        ("LOGIN alice sesame", "bad option (argument 2) for 'login': expected SESSION, HOLD, ORIGIN, TOKEN or REFRESH"),
        (
            "GET alice bob FIT cover",
            "FIT of 'get' needs SIZE: expected SIZE, FIT, FORMAT, URL, WAIT, CACHED, NOWAIT, IFNOT or META"
        ),
        ("STAT alice bob FORMAT png", "FORMAT of 'stat' needs SIZE: expected SIZE, FIT or FORMAT"),
        ("GET alice bob SIZE 5 FIT", "option FIT of 'get' has no value"),
        ("GET alice bob SIZE 5 FIT fill", "bad FIT 'fill': expected one of cover, contain"),
        ("MGET alice 1 bob SIZE 5 FORMAT gif", "bad FORMAT 'gif': expected one of source, png, jpeg, webp"),
        ("STAT alice SIZE 64", "bad option (argument 3) for 'stat': expected SIZE, FIT or FORMAT"),
        ("STAT alice bob WAIT 1", "bad option 'WAIT' for 'stat': expected SIZE, FIT or FORMAT"),
        ("PUT alice bob x CACHED", "bad option 'CACHED' for 'put': expected SIZE or TTL"),
        ("MGET alice 1 bob META", "bad option 'META' for 'mget': expected SIZE, FIT, FORMAT, WAIT, CACHED or NOWAIT"),
        ("LOGOUT alice HOLD", "bad option 'HOLD' for 'logout': expected SESSION or UID"),
        ("PURGE alice SESSION x", "bad option 'SESSION' for 'purge': expected UID"),
        ("HELLO 3 HOLD", "bad option 'HOLD' for 'hello': expected AUTH or SETNAME"),
        ("GET alice bob SIZE 64 size 64", "option SIZE of 'get' is given twice"),
        ("GET alice bob CACHED CACHED", "option CACHED of 'get' is given twice"),
        ("LOGIN alice TOKEN a HOLD token b", "option TOKEN of 'login' is given twice"),
        ("GET alice bob SIZE", "option SIZE of 'get' has no value"),
        ("GET alice bob META IFNOT", "option IFNOT of 'get' has no value"),
        ("LOGOUT * UID", "option UID of 'logout' has no value"),
        ("HELLO 3 AUTH name", "option AUTH of 'hello' has no value"),
        // Values.
        ("GET alice bob SIZE 0", "bad SIZE '0': expected a whole number (pixels) from 1 to 4096"),
        ("GET alice bob SIZE 4097", "bad SIZE '4097': expected a whole number (pixels) from 1 to 4096"),
        ("GET alice bob SIZE 65537", "bad SIZE '65537': expected a whole number (pixels) from 1 to 4096"),
        ("GET alice bob SIZE -1", "bad SIZE '-1': expected a whole number (pixels) from 1 to 4096"),
        ("GET alice bob SIZE +1", "bad SIZE '+1': expected a whole number (pixels) from 1 to 4096"),
        ("GET alice bob SIZE 64px", "bad SIZE '64px': expected a whole number (pixels) from 1 to 4096"),
        ("GET alice bob SIZE 1.5", "bad SIZE '1.5': expected a whole number (pixels) from 1 to 4096"),
        ("GET alice bob SIZE 064", "bad SIZE '064': expected a whole number (pixels) from 1 to 4096"),
        (
            "GET alice bob SIZE 99999999999999999999999",
            "bad SIZE '99999999999999999999999': expected a whole number (pixels) from 1 to 4096"
        ),
        ("GET alice bob WAIT 600001", "bad WAIT '600001': expected a whole number (milliseconds) from 0 to 600000"),
        ("PUT alice bob x TTL 0", "bad TTL '0': expected a whole number (seconds) from 1 to 315360000"),
        ("PUT alice bob x TTL 315360001", "bad TTL '315360001': expected a whole number (seconds) from 1 to 315360000"),
        (
            "LOGOUT alice UID 4294967295",
            "bad UID '4294967295': expected a whole number (a user of this machine; * for all of them) from 0 to 4294967294"
        ),
        ("LOGOUT alice UID", "option UID of 'logout' has no value"),
        (
            "LOGOUT alice UID **",
            "bad UID '**': expected a whole number (a user of this machine; * for all of them) from 0 to 4294967294"
        ),
        (
            "PURGE alice UID root",
            "bad UID 'root': expected a whole number (a user of this machine; * for all of them) from 0 to 4294967294"
        ),
        (
            "GET alice bob IFNOT abc",
            "bad IFNOT: expected 64 lower-case hexadecimal digits, the SHA-256 of an image"
        ),
        (
            "GET alice bob IFNOT \(String(repeating: "A", count: 64))",
            "bad IFNOT: expected 64 lower-case hexadecimal digits, the SHA-256 of an image"
        ),
        (
            "GET alice bob IFNOT \(String(repeating: "g", count: 64))",
            "bad IFNOT: expected 64 lower-case hexadecimal digits, the SHA-256 of an image"
        ),
        ("GET alice bob URL http://\u{e9}", "bad URL: expected 1 to 8192 printable ASCII characters without spaces"),
        (
            "GET alice bob URL http://x/\(String(repeating: "y", count: 8184))",
            "bad URL: expected 1 to 8192 printable ASCII characters without spaces"
        ),
        ("LOGIN alice ORIGIN a\u{7}b", "bad ORIGIN: expected the name of a configured origin, at most 512 bytes"),
        // Counts.
        (
            "MGET alice bob carol",
            "the count of profiles is not a whole number of decimal digits: "
                + "MGET user count profile [profile ...] \(sizing) [WAIT ms] [CACHED|NOWAIT]"
        ),
        ("MGET alice 0 bob", "the count of profiles is 0: expected at least 1"),
        ("MGET alice 2 bob", "the count of profiles is 2, more than the arguments that follow (1)"),
        (
            "MGET alice 9223372036854775807 bob",
            "the count of profiles is 9223372036854775807, more than the arguments that follow (1)"
        ),
        (
            "MGET alice 99999999999999999999 bob",
            "the count of profiles is 99999999999999999999, more than the arguments that follow (1)"
        ),
        (
            "MGET alice 1 bob carol",
            "bad option (argument 4) for 'mget': expected SIZE, FIT, FORMAT, WAIT, CACHED or NOWAIT"
        ),
        ("PURGE alice bob", "the count of profiles is not a whole number of decimal digits: \(purgeSyntax)"),
        ("PURGE alice -1 bob", "the count of profiles is not a whole number of decimal digits: \(purgeSyntax)"),
        ("PURGE alice 0", "the count of profiles is 0: expected at least 1"),
        ("PURGE alice 1", "the count of profiles is 1, more than the arguments that follow (0)"),
        ("PURGE alice 2 bob UID 5 x", "bad option (argument 5) for 'purge': expected UID"),
        // The connection.
        ("SELECT 1", "no database '1': only 0 exists"),
        ("SELECT zero", "no database 'zero': only 0 exists"),
        (
            "CLIENT NO-EVICT on",
            "unknown subcommand 'NO-EVICT' of 'client': expected ID, LIST, GETNAME, SETNAME, SETINFO or CAPA"
        ),
        ("CLIENT KILL", "unknown subcommand 'KILL' of 'client': expected ID, LIST, GETNAME, SETNAME, SETINFO or CAPA"),
        (
            "CLIENT SETINFO LIB-COLOUR red",
            "bad attribute 'LIB-COLOUR' for 'client setinfo': expected LIB-NAME or LIB-VER"
        ),
        ("COMMAND LIST", "unknown subcommand 'LIST' of 'command': expected COUNT, INFO or DOCS"),
    ]

    @Test(arguments: refused)
    func `An error names what is invalid and what is valid`(line: String, message: String) {
        #expect(refusal(line) == CommandError(.err, message))
    }

    @Test(arguments: ["DOCS", "INFO"])
    func `F66: COMMAND limits the number of names`(subcommand: String) {
        let names = ["COMMAND", subcommand] + [String](repeating: "get", count: 256)
        #expect(refusal(names) == nil)
        let message = "'command \(subcommand)' names 257 commands: at most 256"
        #expect(refusal(names + ["get"]) == CommandError(.err, message))
    }

    @Test(arguments: ["4", "1", "0", "three", "-3", "03", "99999999999999999999"])
    func `HELLO with another version is NOPROTO`(version: String) {
        #expect(
            refusal("HELLO \(version)")
                == CommandError(.noProto, "no protocol version '\(version)': expected 2 or 3"))
    }

    @Test func `An image over the limit is TOOLARGE, one at the limit is accepted`() {
        let limits = RequestLimits(image: 100)
        let longest = String(repeating: "x", count: 100)
        #expect(refusal(["PUT", "alice", "bob", longest], limits: limits) == nil)
        #expect(
            refusal(["PUT", "alice", "bob", longest + "x"], limits: limits)
                == CommandError(.tooLarge, "the image has 101 bytes: at most 100 are accepted"))
    }

    @Test func `I11: a token has RFC 6750's characters and a limit, and no error contains it`() {
        let message =
            "bad TOKEN: expected 1 to 8192 characters of RFC 6750 (letters, digits, - . _ ~ + / and then =)"
        for token in [
            "", "=", "a=b", "se cret", "secret\r\n", "se\u{0}", "s\u{e9}", "a:b", String(repeating: "x", count: 8193),
        ] {
            #expect(refusal(["LOGIN", "alice", "TOKEN", token]) == CommandError(.err, message))
        }
        for token in ["a", "a=", "mF_9.B5f-4.1JqM", "a~+/b==", String(repeating: "x", count: 8192)] {
            #expect(refusal(["LOGIN", "alice", "TOKEN", token]) == nil)
        }
    }

    @Test func `I11: a refresh token has RFC 6749's characters and a limit, and no error contains it`() {
        let message = "bad REFRESH: expected 1 to 8192 printable ASCII characters (RFC 6749)"
        for token in ["", "secret\r\n", "se\u{0}", "s\u{e9}", "s\u{7f}", String(repeating: "x", count: 8193)] {
            #expect(refusal(["LOGIN", "alice", "REFRESH", token]) == CommandError(.err, message))
        }
        for token in ["a", "=", "a=b", " ", "1//0:{\"x\": y}!~", String(repeating: "x", count: 8192)] {
            #expect(refusal(["LOGIN", "alice", "REFRESH", token]) == nil)
        }
    }

    @Test func `No error contains an id or a token`() {
        let secret = "hunter2"
        let requests = [
            ["GET", "alice", "bob", secret], ["MGET", "alice", secret, "bob"], ["PURGE", "alice", secret],
            ["PURGE", "alice", "1", "bob", secret], ["LOGIN", "alice", secret],
            ["LOGIN", "alice", "TOKEN", "x", secret],
            ["LOGIN", "alice", "TOKEN", secret + " "], ["LOGOUT", "alice", secret], ["STAT", "alice", "bob", secret],
            ["HELLO", "3", "AUTH", secret], ["HELLO", "3", "AUTH", "name", secret, secret],
            ["GET", secret], ["LOGIN", secret, "ORIGIN", "\u{1}"], ["GET", "alice", "bob", "URL", secret + " "],
        ]
        for request in requests {
            let message = refusal(request)?.message
            #expect(message != nil, "\(request)")
            #expect(message?.contains(secret) != true, "\(request)")
        }
    }

    @Test(arguments: ["a b", "a\n", "\u{e9}", String(repeating: "x", count: 513)])
    func `Connection names contain no spaces and no control characters`(name: String) {
        let rule = "expected at most 512 printable ASCII characters without spaces"
        #expect(refusal(["CLIENT", "SETNAME", name]) == CommandError(.err, "bad name: \(rule)"))
        #expect(refusal(["HELLO", "3", "SETNAME", name]) == CommandError(.err, "bad SETNAME: \(rule)"))
        #expect(refusal(["CLIENT", "SETINFO", "LIB-VER", name]) == CommandError(.err, "bad lib-ver: \(rule)"))
    }

    @Test func `The name of an origin is UTF-8 of 1 to 512 bytes`() {
        let message = "bad ORIGIN: expected the name of a configured origin, at most 512 bytes"
        for name in [[], [0xFF], Array(repeating: 0x61, count: 513)] as [[UInt8]] {
            let request = Request([bytes("LOGIN"), bytes("alice"), bytes("ORIGIN"), ByteBuffer(bytes: name)])
            #expect(throws: CommandError(.err, message)) { try Command(request) }
        }
        #expect(refusal(["LOGIN", "alice", "ORIGIN", "caf\u{e9}"]) == nil)
    }

    @Test(arguments: [["INFO"], ["COMMAND", "INFO"], ["COMMAND", "DOCS", "get"], ["CLIENT", "SETINFO"]])
    func `An oversized name is rejected`(start: [String]) {
        let word = String(repeating: "x", count: 64)
        #expect(refusal(start + [word])?.message.contains("too long") != true)
        let message = "argument \(start.count) is too long: expected a name of at most 64 bytes"
        #expect(refusal(start + [word + "x", "value"]) == CommandError(.err, message))
    }

    @Test func `A number of more than 32 digits is invalid`() {
        let digits = String(repeating: "9", count: 33)
        let message = "bad SIZE '\(digits.dropLast())...': expected a whole number (pixels) from 1 to 4096"
        #expect(refusal(["GET", "alice", "bob", "SIZE", digits]) == CommandError(.err, message))
    }

    @Test func `An empty request is rejected`() {
        #expect(refusal([]) == CommandError(.err, "the request is empty: expected a command"))
    }

    @Test func `Error codes match the protocol`() {
        #expect(
            ErrorCode.allCases.map(\.rawValue) == [
                "ERR", "NOPROTO", "NOLOGIN", "CANCELLED", "DENIED", "TIMEOUT", "ORIGIN", "UNAUTHORIZED", "BADIMAGE",
                "TOOLARGE", "BUSY", "NOSPACE", "IOERR", "SHUTTINGDOWN",
            ])
    }
}
