import Foundation
import ProgramSupport
import Testing

@testable import thumbcached

@Suite struct BadConfigurationTests {
    struct Case: CustomTestStringConvertible, Sendable {
        let text: String
        let error: String
        init(_ text: String, _ error: String) {
            self.text = text
            self.error = error
        }
        var testDescription: String { text }
    }

    static let origin = "[origins.default]\nurl = \"https://a.example/{profile}\"\n"

    private static let badProxy =
        "f.toml: origins.default.proxy: is not a valid proxy URL; write one that begins with http://, https://, "
        + "socks5h:// (not socks5://) or socks4a:// (not socks4://), since the proxy must resolve names, or \"\" for no proxy"

    static let cases: [Case] = [
        // Not TOML.
        Case("threads = ", "f.toml:1: not TOML: Error while parsing key-value pair: encountered end-of-file"),
        Case("threads 1", "f.toml:1: not TOML: Error while parsing key-value pair: expected '=', saw '1'"),
        Case(
            "threads = 1\nthreads = 2",
            "f.toml:2: not TOML: Error while parsing key-value pair: cannot redefine existing integer 'threads'"),
        Case(
            "[socket\npath = \"/x\"",
            "f.toml:1: not TOML: Error while parsing table header: expected ']', saw '\\n'"),
        Case(
            "[socket]\nmode = 0666",
            "f.toml:2: socket.mode: 0666 is not in quotes; write mode = \"0666\""),
        Case(
            "[storage]\nquota = 64MiB",
            "f.toml:2: storage.quota: 64MiB is not in quotes; write quota = \"64MiB\""),
        Case(
            "[storage]\nquota = 64MB # enough",
            """
            f.toml:2: storage.quota: "64MB" is not a valid size: write a whole number with B, KiB, MiB or GiB, as in "64MiB"
            """),
        Case(
            "[storage]\ncache = \"/c\nquota = \"1GiB\"",
            "f.toml:2: storage.cache: the value has no closing quote; write cache = \"/c\""),
        Case(
            "[storage]\ncache = /c\"",
            "f.toml:2: storage.cache: the value has no opening quote; write cache = \"/c\""),
        Case(
            "[storage]\ncache = “/c”",
            "f.toml:2: storage.cache: “ is a typographic quote; write straight quotes: cache = \"/c\""),
        Case(
            "[sessions]\npurge-on-boot = Yes",
            "f.toml:2: sessions.purge-on-boot: Yes is neither true nor false; write purge-on-boot = true"),
        Case(
            "[origins.default]\nurl = https://a.example/{profile}?key=secret",
            """
            f.toml:2: origins.default.url: the value is not in quotes; write url = "..."
            """),
        Case(
            "[limits]\nstall = -5",
            "f.toml: limits.stall: -5 is negative and has no unit; write a time in quotes "
                + "with its unit, as in \"2s\""),
        Case(
            "threads 1\n[limits]\nid =\nid = 0\nid = 0\nstall = 5s",
            """
            f.toml:1: not TOML: Error while parsing key-value pair: expected '=', saw '1'
            f.toml:3: not TOML: Error while parsing key-value pair: expected value, saw '\\n'
            f.toml:5: not TOML: Error while parsing key-value pair: cannot redefine existing integer 'id'
            f.toml:6: limits.stall: 5s is not in quotes; write stall = "5s"
            """),
        // Several mistakes.
        Case(
            """
            threads = one two
            [storage]
            quota = 64MiB
            user-quota = "8MiB
            cache = “/c”
            [limits]
            downloads = -1
            """,
            """
            f.toml:1: threads: is a string; write a whole number without quotes, as in 1
            f.toml:3: storage.quota: 64MiB is not in quotes; write quota = "64MiB"
            f.toml:4: storage.user-quota: the value has no closing quote; write user-quota = "8MiB"
            f.toml:5: storage.cache: “ is a typographic quote; write straight quotes: cache = "/c"
            f.toml: limits.downloads: -1 is negative: valid values are 1 to 100000
            """),
        Case("[log]\n\nlevel = \"a\\u0000b\"", "f.toml:3: a configuration cannot contain a NUL character"),
        Case("# \0", "f.toml:1: a configuration cannot contain a NUL character"),

        // Unknown keys.
        Case("colour = 1", "f.toml: colour: unknown key; thumbcached.toml(5) lists all keys"),
        Case("thread = 1", "f.toml: thread: unknown key; did you mean threads?"),
        Case("[limits]\nimages = \"1MiB\"", "f.toml: limits.images: unknown key; did you mean limits.image?"),
        Case("[limit]\nimage = \"1MiB\"", "f.toml: limit: unknown key; did you mean limits?"),
        Case(
            "limits.quota = \"1MiB\"",
            "f.toml: limits.quota: unknown key; thumbcached.toml(5) lists all keys"),
        Case(
            "[socket]\n\"a\\nb\" = 1",
            "f.toml: socket.\"a\\u{a}b\": unknown key; thumbcached.toml(5) lists all keys"),
        Case(
            origin + "time-out = \"2s\"",
            "f.toml: origins.default.time-out: unknown key; did you mean origins.default.timeout?"),
        Case(
            origin + "token = { endpoint = \"https://a/t\", client-id = \"a\", secret = \"s\" }",
            """
            f.toml: origins.default.token.secret: unknown key; thumbcached.toml(5) lists all keys
            """),
        Case(
            origin + "token = { client-secret-file = \"/nonexistent\" }",
            """
            f.toml: origins.default.token.client-secret-file: "/nonexistent" cannot be read: No such file or directory
            f.toml: origins.default.token.endpoint: is missing; a token endpoint has endpoint and client-id, \
            and client-secret-file if the client has a secret
            f.toml: origins.default.token.client-id: is missing; a token endpoint has endpoint and client-id, \
            and client-secret-file if the client has a secret
            """),
        Case(
            origin + "token = { endpoint = \"https://a/t\", client-id = \"a\", client-secret-file = \"/nonexistent\" }",
            """
            f.toml: origins.default.token.client-secret-file: "/nonexistent" cannot be read: \
            No such file or directory
            """),
        Case(
            origin + "token = { endpoint = \"https://a/t\", client-id = \"a\", client-secret-file = \"/dev/null\" }",
            "f.toml: origins.default.token.client-secret-file: \"/dev/null\" is not a plain file"),

        // Values of the wrong type.
        Case("threads = \"1\"", "f.toml: threads: is a string; write a whole number without quotes, as in 1"),
        Case("threads = 1.5", "f.toml: threads: is a decimal number; write a whole number without quotes, as in 1"),
        Case("socket = \"/x\"", "f.toml: socket: is a string, but must be a section: write [socket]"),
        Case("[[limits]]", "f.toml: limits: is a list, but must be a section: write [limits]"),
        Case("[socket]\npath = true", "f.toml: socket.path: is true or false; write a path in quotes"),
        Case(
            "[socket]\nmode = 666", "f.toml: socket.mode: is an integer; write the mode in quotes, as in \"0666\""),
        Case(
            "[storage]\nquota = 1000",
            "f.toml: storage.quota: 1000 has no unit; write a size in quotes with its unit, as in \"64MiB\""),
        Case(
            "[sessions]\npending-logouts = \"pending\"",
            "f.toml: sessions.pending-logouts: \"pending\" is not an absolute path: it must begin with /, or "
                + "be \"\" for "
                + "none"),
        Case(
            "[sessions]\npurge-on-boot = \"no\"",
            "f.toml: sessions.purge-on-boot: is a string; write true or false, without quotes"
        ),
        Case(
            "[limits]\nstall = 2024-01-01",
            "f.toml: limits.stall: is a date; write a time in quotes with its unit, as in \"2s\""),
        Case(
            "[access]\nadmins = \"root\"",
            "f.toml: access.admins: is a string; write a list, as in [\"root\", \"@wheel\"]"),
        Case(
            "[access]\nadmins = [\n  \"root\",\n  0,\n]",
            "f.toml: access.admins[1]: is an integer; write a text in quotes"),
        Case(
            "[access]\nobservers = \"root\"",
            "f.toml: access.observers: is a string; write a list, as in [\"prometheus\", \"@monitoring\"]"),
        Case(
            "[access]\nobservers = [\"alice\", \"@\"]",
            "f.toml: access.observers[1]: \"@\" is not a valid name: write a user, as in \"root\", or a group, as in \"@wheel\""
        ),
        Case(
            "[log]\nlevel = {}",
            "f.toml: log.level: is a table; write one of "
                + "\"trace\", \"debug\", \"info\", \"notice\", \"warning\", \"error\", \"critical\""),
        Case(
            "origins = []",
            "f.toml: origins: is a list, but each origin must be a section: write [origins.default]"),
        Case(
            "[origins]\nurl = \"https://a.example\"",
            "f.toml: origins.url: is a string, but each origin must be a section: write [origins.default]"),
        Case(
            origin + "token = \"x\"",
            "f.toml: origins.default.token: is a string, but must be a section: write [origins.default.token]"),

        // Invalid values.
        Case(
            origin + "backoff = \"2m\"\nbackoff-max = \"1m\"",
            "f.toml: origins.default.backoff: 2m is more than origins.default.backoff-max (1m): "
                + "lower the one or raise the other"),
        Case(
            origin + "then = [\"https://b.example\"]",
            "f.toml: origins.default.then[0]: is a string; write { url = \"https://avatars.example.org/{profile}\" }"),
        Case(
            origin
                + "[[origins.default.then]]\nurl = \"https://b.example\"\n[[origins.default.then]]\nshow-token = true",
            "f.toml: origins.default.then[1].url: is missing; write a URL, as in "
                + "\"https://avatars.example.org/{profile}\""),
        Case(
            origin + "[[origins.default.then]]\nurls = \"https://b.example\"",
            """
            f.toml: origins.default.then[0].urls: unknown key; did you mean url?
            f.toml: origins.default.then[0].url: is missing; write a URL, as in "https://avatars.example.org/{profile}"
            """),
        Case(
            origin + "failures = 0",
            "f.toml: origins.default.failures: 0 is out of range: valid values are 1 to 1000000"),
        Case(
            origin + "backoff = \"0s\"", "f.toml: origins.default.backoff: \"0s\" is too short: at least 1ms"),
        Case(
            origin + "retry-after-max = \"2d\"",
            "f.toml: origins.default.retry-after-max: \"2d\" is too long: at most 1d"),
        Case(
            origin + "lowest-speed = 100",
            "f.toml: origins.default.lowest-speed: 100 has no unit; write a size in quotes with its unit, as in \"64MiB\""
        ),
        Case("threads = 0", "f.toml: threads: 0 is out of range: valid values are 1 to 256"),
        Case(
            "threads = -9223372036854775808",
            "f.toml: threads: -9223372036854775808 is negative: valid values are 1 to 256"
        ),
        Case(
            "[socket]\npath = \"run/s\"",
            "f.toml: socket.path: \"run/s\" is not an absolute path: it must begin with /"),
        Case(
            "[socket]\npath = \"/\(String(repeating: "x", count: 107))\"",
            "f.toml: socket.path: is 108 bytes long; the path of a Unix socket has at most 107"),
        Case(
            "[socket]\nmode = \"0888\"",
            "f.toml: socket.mode: \"0888\" is not a valid mode; write three octal digits after a 0, as in \"0666\""),
        Case(
            "[socket]\nmode = \"4755\"",
            "f.toml: socket.mode: \"4755\" is not a valid mode; write three octal digits after a 0, as in \"0666\""),
        Case("[storage]\nkeys = \"memory\"", "f.toml: storage.keys: \"memory\" is not one of \"disk\", \"runtime\""),
        Case("[storage]\nquota = \"0\"", "f.toml: storage.quota: \"0\" is too little: at least 1B"),
        Case(
            "[storage]\nquota = \"5MB\"",
            "f.toml: storage.quota: \"5MB\" is not a valid size: write a whole number with B, KiB, MiB or GiB, as in \"64MiB\""
        ),
        Case(
            "[storage]\nquota = \"9223372036854775807GiB\"",
            "f.toml: storage.quota: \"9223372036854775807GiB\" is not a valid size: "
                + "write a whole number with B, KiB, MiB or GiB, as in \"64MiB\""),
        Case(
            "[memory]\ntier = \"-1MiB\"",
            "f.toml: memory.tier: \"-1MiB\" is negative: write a whole number with B, KiB, MiB or GiB, as in \"64MiB\""
        ),
        Case(
            "[limits]\nstall = \"30\"",
            "f.toml: limits.stall: \"30\" is not a valid time: write a whole number with ms, s, m, h or d, as in \"2s\""
        ),
        Case("[limits]\nstall = \"0s\"", "f.toml: limits.stall: \"0s\" is too short: at least 100ms"),
        Case("[limits]\nstall = \"2d\"", "f.toml: limits.stall: \"2d\" is too long: at most 1d"),
        Case("[limits]\nid = 513", "f.toml: limits.id: 513 is out of range: valid values are 1 to 512"),
        Case("[limits]\nimage = \"2GiB\"", "f.toml: limits.image: \"2GiB\" is too much: at most 1GiB"),
        Case(
            "[access]\nadmins = [\"mallory\"]",
            "f.toml: access.admins[0]: unknown user \"mallory\""),
        Case(
            "[access]\nadmins = [\"root\", \"@staff\"]",
            "f.toml: access.admins[1]: unknown group \"staff\""),
        Case(
            "[access]\nadmins = [\"mallory\", \"root\", 0, \"@staff\"]",
            """
            f.toml: access.admins[0]: unknown user "mallory"
            f.toml: access.admins[2]: is an integer; write a text in quotes
            f.toml: access.admins[3]: unknown group "staff"
            """),
        Case(
            "[access]\nadmins = [\"@\"]",
            "f.toml: access.admins[0]: \"@\" is not a valid name: write a user, as in \"root\", or a group, as in \"@wheel\""
        ),
        Case(
            "[access]\nadmins = [\"4294967295\"]",
            "f.toml: access.admins[0]: \"4294967295\" is not a valid uid: valid values are 0 to 4294967294"),
        Case(
            "[access]\nadmins = [\"broken\"]",
            "f.toml: access.admins[0]: \"broken\": cannot look up user: Input/output error"),
        // Planned keys are unknown, too.
        Case(
            "[metrics]\nlisten = \"127.0.0.1:9187\"",
            "f.toml: metrics: unknown key; thumbcached.toml(5) lists all keys"),
        Case(
            "[log]\nlevel = \"loud\"",
            "f.toml: log.level: \"loud\" is not one of "
                + "\"trace\", \"debug\", \"info\", \"notice\", \"warning\", \"error\", \"critical\""),
        Case(
            "[log]\nlevel = \"warn\"",
            "f.toml: log.level: \"warn\" is not one of "
                + "\"trace\", \"debug\", \"info\", \"notice\", \"warning\", \"error\", \"critical\"; "
                + "did you mean \"warning\"?"),
        Case(
            "[log]\nlevel = \"ERR\"",
            "f.toml: log.level: \"ERR\" is not one of "
                + "\"trace\", \"debug\", \"info\", \"notice\", \"warning\", \"error\", \"critical\"; "
                + "did you mean \"error\"?"),
        Case(
            origin + "renditions = \"allways\"",
            "f.toml: origins.default.renditions: \"allways\" is not one of \"auto\", \"always\", \"never\"; "
                + "did you mean \"always\"?"),

        // Origins.
        Case(
            "[origins.default]",
            "f.toml: origins.default.url: is missing; "
                + "write a URL, as in \"https://avatars.example.org/{profile}?s={size}\""),
        Case(
            "[origins.default]\nurl = \"ftp://a.example/\"",
            "f.toml: origins.default.url: "
                + "is not a URL that begins with http://, https://, ldap:// or ldaps:// and names a host"),
        Case(
            "[origins.default]\nurl = \"https:///x\"",
            "f.toml: origins.default.url: "
                + "is not a URL that begins with http://, https://, ldap:// or ldaps:// and names a host"),
        Case(
            "[origins.default]\nurl = \"https://a.example/{nonsense}\"",
            "f.toml: origins.default.url: {nonsense} is not a placeholder; "
                + "valid: {profile}, {user}, {size}, {profile_sha256}, {profile_md5}"),
        Case(
            origin + "[[origins.default.then]]\nurl = \"https://b.example/{ID}\"",
            "f.toml: origins.default.then[0].url: {ID} is not a placeholder; "
                + "valid: {profile}, {user}, {size}, {profile_sha256}, {profile_md5}"),
        Case(
            "[origins.default]\nurl = \"https://a.example/{PROFILE_MD5}\"",
            "f.toml: origins.default.url: {PROFILE_MD5} is not a placeholder; did you mean {profile_md5}?"),
        Case(
            "[origins.default]\nurl = \"https://a.example/${profile}?s={size}\"",
            "f.toml: origins.default.url: "
                + "write {profile} instead of ${profile}, or %24 for a dollar sign"),
        Case(
            "[origins.default]\nurl = \"https://a.example/{profile\"",
            "f.toml: origins.default.url: a { without a } after the placeholder"),
        Case(
            "[origins.default]\nurl = \"https://a.example/{a\\u001bb}\"",
            "f.toml: origins.default.url: {a\\u{1b}b} is not a placeholder; "
                + "valid: {profile}, {user}, {size}, {profile_sha256}, {profile_md5}"),
        Case(
            origin + "allow = [\"https://a@b.example\"]",
            "f.toml: origins.default.allow: "
                + "\"https://a@b.example\": a URL must not contain a user name or a password"),
        Case(
            "[origins.\"a b\"]\nurl = \"https://a.example/\"",
            "f.toml: origins.\"a b\": an origin's name must have 1 to 64 letters, digits, - or _"),
        Case(
            origin + "default-size = 4097",
            "f.toml: origins.default.default-size: 4097 is out of range: valid values are 1 to 4096"),
        Case(origin + "timeout = \"0s\"", "f.toml: origins.default.timeout: \"0s\" is too short: at least 1ms"),
        Case(
            origin + "default-ttl = \"1500ms\"",
            "f.toml: origins.default.default-ttl: \"1500ms\" is not a whole number of seconds"
        ),
        Case(
            origin + "allow = [\"https://cdn.example/\", \"cdn.example\"]",
            "f.toml: origins.default.allow[1]: "
                + "is not a URL that begins with http:// or https:// and names a host"),
        Case(
            origin + "bind = { name = \"cn=a\" }",
            "f.toml: origins.default.bind.password-file: is missing; a bind has name and password-file"),
        Case(
            "[origins.default]\nurl = \"ldap://h/dc=a?mail?sub?(mail={profile})\"",
            "f.toml: origins.default.url: the attribute of an LDAP URL is \"mail\"; it must be jpegPhoto or "
                + "thumbnailPhoto"),
        Case(
            origin + "ca-file = \"ca.pem\"",
            "f.toml: origins.default.ca-file: "
                + "\"ca.pem\" is not an absolute path: it must begin with /, or be \"\" for none"),
        Case(
            origin + "ca-file = \"/nonexistent/ca.pem\"",
            "f.toml: origins.default.ca-file: \"/nonexistent/ca.pem\" cannot be read: No such file or directory"),
        Case(origin + "proxy = \"user:secret@proxy\"", badProxy),
        Case(origin + "proxy = \"socks5://proxy:1080\"", badProxy),
        Case(origin + "proxy = \"socks4://proxy:1080\"", badProxy),
        Case(origin + "proxy = \"gopher://proxy\"", badProxy), Case(origin + "proxy = \"http://\"", badProxy),
        Case(origin + "proxy = \"http://a b\"", badProxy),
        Case(
            origin + "connections = 0",
            "f.toml: origins.default.connections: 0 is out of range: valid values are 1 to 10000"),

        // Values that contradict each other.
        Case(
            "[storage]\nquota = \"1MiB\"\nuser-quota = \"2MiB\"",
            "f.toml: storage.user-quota: 2MiB is more than storage.quota (1MiB): lower the one or raise the other"),
        Case(
            "[storage]\nuser-quota = \"2GiB\"",
            "f.toml: storage.user-quota: 2GiB is more than storage.quota (1GiB, the default): "
                + "lower the one or raise the other"),
        Case(
            "[limits]\nimage = \"20MiB\"",
            "f.toml: limits.image: 20MiB is more than limits.input (16MiB, the default): "
                + "lower the one or raise the other"),
        Case(
            "[limits]\nimage = \"3MiB\"\n[storage]\nuser-quota = \"2MiB\"",
            "f.toml: limits.image: 3MiB is more than storage.user-quota (2MiB): lower the one or raise the other"),
        Case(
            "[limits]\ninput = \"65MiB\"",
            "f.toml: limits.input: 65MiB is more than limits.memory-per-uid (64MiB, the default): "
                + "lower the one or raise the other"),
        Case(
            "[limits]\nmemory-per-uid = \"4095B\"",
            "f.toml: limits.memory-per-uid: \"4095B\" is too little: at least 4KiB"),
        Case(
            "[limits]\nconnections = 8\nconnections-per-uid = 9",
            "f.toml: limits.connections-per-uid: 9 is more than limits.connections (8): "
                + "lower the one or raise the other"),
        Case(
            "[limits]\nconnections = 8\nadmin-connections = 8",
            "f.toml: limits.admin-connections: 8 is not less than limits.connections (8): "
                + "lower the one or raise the other"),
        Case(
            "[limits]\ndownloads-per-uid = 257",
            "f.toml: limits.downloads-per-uid: 257 is more than limits.downloads (256, the default): "
                + "lower the one or raise the other"),

        // Several errors.
        Case(
            "[log]\nlevel = 1\n[limits]\nid = 0\nimages = 1",
            """
            f.toml: limits.id: 0 is out of range: valid values are 1 to 512
            f.toml: limits.images: unknown key; did you mean limits.image?
            f.toml: log.level: is an integer; write one of \
            "trace", "debug", "info", "notice", "warning", "error", "critical"
            """),
    ]

    @Test(arguments: cases) func `F50: an invalid file is rejected with file, key and what would be valid`(_ bad: Case)
    {
        let error = #expect(throws: ConfigurationError.self) { try Fixture.decode(bad.text) }
        #expect(error?.description == bad.error)
    }

    @Test func `F50: an unreadable file is rejected with the reason`() throws {
        try Fixture.withDirectory { directory in
            func refusal(_ name: String) -> String? {
                let error = #expect(throws: ConfigurationError.self) { try Fixture.loader().load(file: name) }
                return error?.description.replacing(directory, with: "DIR")
            }
            func write(_ name: String, _ bytes: some Collection<UInt8>) throws {
                try Data(bytes).write(to: URL(filePath: "\(directory)/\(name)"))
            }
            try write("latin", [0x23, 0xe9])
            try write("large", [UInt8](repeating: 0x20, count: (1 << 20) + 1))
            try #require(mkfifo("\(directory)/fifo", 0o600) == 0)
            try #require(symlink("\(directory)/loop", "\(directory)/loop") == 0)

            #expect(refusal("\(directory)/absent") == "DIR/absent: cannot be read: No such file or directory")
            #expect(refusal(directory) == "DIR: is not a plain file")
            #expect(refusal("\(directory)/fifo") == "DIR/fifo: is not a plain file")
            #expect(refusal("/dev/zero") == "/dev/zero: is not a plain file")
            #expect(refusal("\(directory)/latin") == "DIR/latin: is not UTF-8 text")
            #expect(refusal("\(directory)/large") == "DIR/large: has more than 1048576 bytes")
            #expect(
                refusal("\(directory)/loop") == "DIR/loop: cannot be read: Too many levels of symbolic links")
        }
    }

    @Test(arguments: ["one\ntwo", "one\r\ntwo\r\n", "\none"])
    func `a secret with line breaks is rejected, and the error omits it`(_ secret: String) throws {
        try Fixture.withDirectory { directory in
            try Data(secret.utf8).write(to: URL(filePath: "\(directory)/secret"))
            let token =
                "{ endpoint = \"https://a/t\", client-id = \"a\", client-secret-file = \"\(directory)/secret\" }"
            let error = #expect(throws: ConfigurationError.self) {
                try Fixture.decode(Self.origin + "token = \(token)")
            }
            let key = "f.toml: origins.default.token.client-secret-file"
            let sentence = "has several lines; it must contain only the secret, on one line"
            #expect(error?.description == "\(key): \"\(directory)/secret\" \(sentence)")
        }
    }

    @Test func `F50: without a default directory, the error names the variables`() {
        let error = #expect(throws: ConfigurationError.self) {
            try Fixture.loader(environment: [:], uid: 1000).decode("storage.keys = \"runtime\"", file: "f.toml")
        }
        #expect(
            error?.description == """
                f.toml: storage.cache: no default: \
                set it, or CACHE_DIRECTORY, XDG_CACHE_HOME or HOME in the environment
                f.toml: storage.state: no default: \
                set it, or STATE_DIRECTORY, XDG_STATE_HOME or HOME in the environment
                f.toml: storage.runtime: no default: \
                set it, or RUNTIME_DIRECTORY or XDG_RUNTIME_DIR in the environment
                f.toml: socket.path: no default: \
                set it, or RUNTIME_DIRECTORY or XDG_RUNTIME_DIR in the environment
                """)
    }
}
