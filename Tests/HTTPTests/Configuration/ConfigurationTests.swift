import Foundation
import Logging
import ProgramSupport
import Testing

@testable import thumbcached_http

@Suite struct ConfigurationTests {
    private static func read(_ text: String) throws -> HTTPConfiguration {
        try HTTPConfiguration.decode(text, file: "http.toml")
    }

    private static func text(_ path: String) throws -> String {
        let repository = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent()
        return try String(contentsOf: repository.appending(path: path), encoding: .utf8)
    }

    @Test func `everything is off by default`() throws {
        let configuration = try Self.read("")
        #expect(configuration == HTTPConfiguration())
        #expect(configuration.figures.listen == nil && configuration.images.listen == nil)
        #expect(!configuration.images.servesImages)
    }

    @Test func `the example has every key with its default`() throws {
        let lines = try Self.text("config/http.toml").components(separatedBy: "\n")
        let keys = lines.compactMap { $0.firstMatch(of: #/^([a-z-]+) = /#).map { String($0.output.1) } }
        #expect(keys.count == HTTPConfiguration.settings.count)
        #expect(try Self.read(lines.joined(separator: "\n")) == HTTPConfiguration())
    }

    @Test func `docs/http.md has a row with the default of every key`() throws {
        let rows = try Self.text("docs/http.md").split(separator: "\n").filter { $0.hasPrefix("| `") }
        let cells = rows.map { row in
            row.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces).replacing("`", with: "") }
        }
        let known = Set(HTTPConfiguration.settings.map(\.name))
        let documented = cells.filter { known.contains($0[0]) }
        #expect(Set(documented.map { $0[0] }) == known && documented.count == known.count)
        for row in documented { #expect(try Self.read("\(row[0]) = \(row[1])") == HTTPConfiguration(), "\(row)") }
    }

    @Test func `every key is read`() throws {
        let configuration = try Self.read(
            """
            socket = "/run/other.sock"
            [figures]
            listen = "[::1]:9420"
            hosts = ["metrics.example.org"]
            [images]
            listen = "/run/thumbcached-http/images.sock"
            hosts = ["avatars.example.org", "192.0.2.7"]
            user = "site"
            log-in = true
            origin = "libravatar"
            per-user = "signed"
            signing-key = "/etc/thumbcached/http-signing-key"
            default = "initials"
            default-urls = ["https://static.example.org/avatars/"]
            size-limit = 512
            wait = "3s"
            max-age = "1d"
            user-max-age = "5m"
            embedding = "cross-origin"
            connections = 64
            memory = "128MiB"
            [log]
            level = "debug"
            """)
        // Each differs from its default.
        for setting in HTTPConfiguration.settings {
            var changed = configuration
            setting.copy(HTTPConfiguration(), &changed)
            #expect(changed != configuration, "\(setting.name)")
        }
        #expect(configuration.images.listen == .unix(path: "/run/thumbcached-http/images.sock"))
        #expect(configuration.images.longestAge == 86_400 && configuration.images.longestUserAge == 300)
        #expect(configuration.images.wait == 3_000 && configuration.images.memory == 128 << 20)
        #expect(configuration.warnings == [])
    }

    @Test(arguments: [
        ("images.listen = \"localhost:80\"", "images.listen"), ("images.listen = 80", "images.listen"),
        ("figures.listen = \"images.sock\"", "figures.listen"), ("images.hosts = [\"a b\"]", "images.hosts[0]"),
        ("images.user = \"*\"", "images.user"), ("images.per-user = \"on\"", "images.per-user"),
        ("images.default = \"robohash\"", "images.default"),
        ("images.default-urls = [\"https://a\"]", "images.default-urls[0]"),
        ("images.size-limit = 0", "images.size-limit"), ("images.size-limit = 4097", "images.size-limit"),
        ("images.wait = \"1ms\"", "images.wait"), ("images.max-age = \"1ms\"", "images.max-age"),
        ("images.log-in = true", "images.log-in"), ("images.usr = \"a\"", "images.usr"),
        ("images.signing-key = \"key\"", "images.signing-key"),
    ])
    func `an invalid value is reported with its key`(text: String, key: String) {
        let error = #expect(throws: ConfigurationError.self) { try Self.read(text) }
        #expect(error?.problems.map(\.key) == [key])
    }

    @Test func `images without users, and users without protection, cause a warning`() throws {
        func keys(_ text: String) throws -> [String?] { try Self.read(text).warnings.map(\.key) }
        let listen = "[images]\nlisten = \"127.0.0.1:9422\"\n"
        #expect(try keys(listen) == ["images.listen"])
        #expect(try keys(listen + "user = \"site\"") == [])
        #expect(try keys(listen + "per-user = \"open\"") == ["images.per-user"])
        #expect(try keys(listen + "per-user = \"signed\"") == [])
        #expect(try keys("[images]\nlisten = \"/s\"\nper-user = \"open\"") == [])
    }

    private func listeners(_ text: String, _ passed: [SocketActivation.Socket] = []) throws -> Listeners {
        try Listeners(try Self.read(text), passed: passed, file: "http.toml")
    }

    @Test func `a socket of systemd takes the place of the configured address`() throws {
        let address = try #require(ListenAddress("127.0.0.1:9420"))
        let both = try listeners(
            "figures.listen = \"127.0.0.1:9420\"\nimages.listen = \"127.0.0.1:9422\"",
            [.init(name: "images", descriptor: 3, isUnix: true)])
        #expect(both.figures == .address(address) && both.images == .passed(3, isUnix: true))
        let passed = try listeners(
            "",
            [.init(name: "figures", descriptor: 3, isUnix: false), .init(name: "images", descriptor: 4, isUnix: true)])
        #expect(passed.figures == .passed(3, isUnix: false) && passed.images == .passed(4, isUnix: true))
        #expect(try listeners("figures.listen = \"127.0.0.1:9420\"").images == nil)
    }

    @Test(arguments: [[], ["other"], [""], ["images", "images"]])
    func `without a listener, or with a socket of another name, the program does not start`(names: [String]) throws {
        let passed = names.enumerated().map { index, name in
            SocketActivation.Socket(name: name, descriptor: CInt(3 + index), isUnix: true)
        }
        let failure = #expect(throws: Listeners.Failure.self) { try listeners("", passed) }
        #expect(failure?.description.contains(names.isEmpty ? "no listener" : "FileDescriptorName") == true)
    }

    @Test func `the key is a file or a credential`() throws {
        let folder = FileManager.default.temporaryDirectory.appending(path: "http-\(UUID())")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { #expect(throws: Never.self) { try FileManager.default.removeItem(at: folder) } }
        let file = folder.appending(path: "signing-key")
        try Data("0123456789abcdef0123456789abcdef\n".utf8).write(to: file)
        let keys = try SigningKeys.load(path: file.path, credentials: nil)
        #expect(try SigningKeys.load(path: "", credentials: folder.path) == keys)
        for (path, credentials) in [("", nil), ("", "/nothing"), ("/nothing", folder.path)] as [(String, String?)] {
            #expect(throws: SigningKeys.Failure.self) { try SigningKeys.load(path: path, credentials: credentials) }
        }
    }
}
