import ImageOptions
import NIOCore
import Testing

@testable import ThumbcacheProtocol

@Suite struct CommandParsingTests {
    static let digest = String(repeating: "0123456789abcdef", count: 4)
    static let get = GetCommand(user: bytes("alice"), profile: bytes("bob"))
    static let put = PutCommand(user: bytes("alice"), profile: bytes("bob"), image: bytes("x"))
    static let mget = MGetCommand(user: bytes("alice"), profiles: [bytes("bob"), bytes("carol")])
    static let login = LoginCommand(user: bytes("alice"))

    static let commands: [(line: String, command: Command)] = [
        ("GET alice bob", .get(get)),
        ("get alice bob", .get(get)),
        ("gEt alice bob", .get(get)),
        ("GET alice bob SIZE 64", .get(with(get) { $0.size = 64 })),
        ("GET alice bob size 1", .get(with(get) { $0.size = 1 })),
        ("GET alice bob Size 4096", .get(with(get) { $0.size = 4096 })),
        (
            "GET alice bob FORMAT WebP size 64 FIT contain",
            .get(
                with(get) {
                    $0.size = ImageSize(64, fit: .contain, format: .webp)
                })
        ),
        (
            "GET alice bob URL https://example.org/a?b=%20#c",
            .get(with(get) { $0.url = "https://example.org/a?b=%20#c" })
        ),
        ("GET alice bob WAIT 0", .get(with(get) { $0.wait = 0 })),
        ("GET alice bob WAIT 600000", .get(with(get) { $0.wait = 600_000 })),
        ("GET alice bob CACHED", .get(with(get) { $0.download = .never })),
        ("GET alice bob nowait", .get(with(get) { $0.download = .inBackground })),
        ("GET alice bob META", .get(with(get) { $0.meta = true })),
        ("GET alice bob IFNOT \(digest)", .get(with(get) { $0.ifNot = bytes(digest) })),
        (
            "GET alice bob meta ifnot \(digest) cached wait 5 url x:y size 7",
            .get(
                with(get) {
                    $0.size = 7
                    $0.url = "x:y"
                    $0.wait = 5
                    $0.download = .never
                    $0.ifNot = bytes(digest)
                    $0.meta = true
                })
        ),
        ("MGET alice 2 bob carol", .mget(mget)),
        (
            "mget alice 2 bob carol SIZE 9 WAIT 8 CACHED",
            .mget(
                with(mget) {
                    $0.size = 9
                    $0.wait = 8
                    $0.download = .never
                })
        ),
        ("MGET alice 1 bob", .mget(MGetCommand(user: bytes("alice"), profiles: [bytes("bob")]))),
        ("PUT alice bob x", .put(put)),
        ("PUT alice bob x TTL 1", .put(with(put) { $0.ttl = 1 })),
        (
            "put alice bob x ttl 315360000 size 2",
            .put(
                with(put) {
                    $0.ttl = 315_360_000
                    $0.size = 2
                })
        ),
        ("PURGE alice", .purge(PurgeCommand(target: .user(bytes("alice"))))),
        ("PURGE *", .purge(PurgeCommand(target: .all))),
        ("PURGE * UID 0", .purge(with(PurgeCommand(target: .all)) { $0.uid = .uid(0) })),
        (
            "PURGE alice uid 4294967294",
            .purge(with(PurgeCommand(target: .user(bytes("alice")))) { $0.uid = .uid(.max - 1) })
        ),
        (
            "PURGE alice 1 * UID *",
            .purge(
                with(PurgeCommand(target: .user(bytes("alice")))) {
                    $0.profiles = [bytes("*")]
                    $0.uid = .all
                })
        ),
        ("LOGOUT alice UID *", .logout(with(LogoutCommand(target: .user(bytes("alice")))) { $0.uid = .all })),
        ("LOGOUT * uid *", .logout(with(LogoutCommand(target: .all)) { $0.uid = .all })),
        (
            "PURGE alice 2 bob carol",
            .purge(with(PurgeCommand(target: .user(bytes("alice")))) { $0.profiles = [bytes("bob"), bytes("carol")] })
        ),
        (
            "PURGE alice 1 bob UID 5",
            .purge(
                with(PurgeCommand(target: .user(bytes("alice")))) {
                    $0.profiles = [bytes("bob")]
                    $0.uid = .uid(5)
                })
        ),
        ("EXPLAIN alice bob", .explain(ExplainCommand(user: bytes("alice"), profile: bytes("bob")))),
        (
            "explain alice bob FORMAT png SIZE 3",
            .explain(
                ExplainCommand(user: bytes("alice"), profile: bytes("bob"), size: ImageSize(3, format: .png)))
        ),
        ("STAT alice", .stat(StatCommand(user: bytes("alice")))),
        ("STAT alice bob", .stat(with(StatCommand(user: bytes("alice"))) { $0.profile = bytes("bob") })),
        (
            "STAT alice bob SIZE 3",
            .stat(
                with(StatCommand(user: bytes("alice"))) {
                    $0.profile = bytes("bob")
                    $0.size = 3
                })
        ),
        ("LOGIN alice", .login(login)),
        (
            "login alice refresh r== token t/+~._-A hold origin work session desk",
            .login(
                with(login) {
                    $0.session = bytes("desk")
                    $0.hold = true
                    $0.origin = "work"
                    $0.token = bytes("t/+~._-A")
                    $0.refresh = bytes("r==")
                })
        ),
        ("LOGOUT alice", .logout(LogoutCommand(target: .user(bytes("alice"))))),
        (
            "LOGOUT * UID 1000 SESSION desk",
            .logout(
                with(LogoutCommand(target: .all)) {
                    $0.uid = .uid(1000)
                    $0.session = bytes("desk")
                })
        ),
        ("USERS", .users),
        ("HELLO", .hello(HelloCommand())),
        ("HELLO 2", .hello(with(HelloCommand()) { $0.version = 2 })),
        (
            "HELLO 3 SETNAME me",
            .hello(
                with(HelloCommand()) {
                    $0.version = 3; $0.name = bytes("me")
                })
        ),
        (
            "HELLO 3 SETNAME me AUTH default secret",
            .hello(
                with(HelloCommand()) {
                    $0.version = 3
                    $0.name = bytes("me")
                    $0.hasAuth = true
                })
        ),
        (
            "HELLO 3 AUTH SETNAME AUTH",
            .hello(
                with(HelloCommand()) {
                    $0.version = 3; $0.hasAuth = true
                })
        ),
        ("PING", .ping(nil)),
        ("ping hi", .ping(bytes("hi"))),
        ("ECHO hi", .echo(bytes("hi"))),
        ("QUIT", .quit),
        ("RESET", .reset),
        ("SELECT 0", .select),
        ("CLIENT ID", .client(.id)),
        ("client getname", .client(.getName)),
        ("CLIENT SETNAME worker-1", .client(.setName(bytes("worker-1")))),
        ("CLIENT SETINFO LIB-NAME redis-py(x)", .client(.setInfo(key: "lib-name", value: bytes("redis-py(x)")))),
        ("CLIENT CAPA redirect", .client(.capabilities)), ("client capa a b", .client(.capabilities)),
        ("CLIENT SETINFO lib-ver 7.0", .client(.setInfo(key: "lib-ver", value: bytes("7.0")))),
        ("COMMAND", .command(.all)),
        ("COMMAND COUNT", .command(.count)),
        ("COMMAND INFO", .command(.info([]))),
        ("COMMAND INFO get Nothing", .command(.info(["get", "Nothing"]))),
        ("COMMAND DOCS", .command(.docs([]))),
        ("command docs client|id", .command(.docs(["client|id"]))),
        ("INFO", .info([])),
        ("info Server MEMORY", .info(["server", "memory"])),
    ]

    @Test(arguments: commands)
    func `Requests are parsed`(line: String, command: Command) throws {
        #expect(try parse(line) == command)
    }

    @Test(arguments: CommandName.allCases)
    func `Every described command is parsed, in any case`(name: CommandName) {
        for name in [name.name, name.name.uppercased()] {
            #expect(refusal(name)?.message.hasPrefix("unknown command") != true)
        }
    }

    @Test func `An empty connection name removes the name`() throws {
        #expect(try parse(["CLIENT", "SETNAME", ""]) == .client(.setName(ByteBuffer())))
    }

    @Test func `An empty image is accepted by the parser`() throws {
        guard case .put(let put) = try parse(["PUT", "alice", "bob", ""]) else {
            Issue.record("not a PUT")
            return
        }
        #expect(put.image.readableBytes == 0)
    }
}
