import Foundation
import Testing
@_spi(Wire) import Thumbcache

@testable import thumbcachectl

/// The decisions and output of `doctor`.
@Suite struct DoctorTests {
    @Test func `problems determine the exit status, then unknown results`() {
        func status(_ diagnostics: Diagnostic...) -> thumbcachectl.ExitStatus? {
            Diagnosis(diagnostics: diagnostics.map { ("a", $0) }).failure?.status
        }
        #expect(status() == nil)
        #expect(status(.ok("a"), .note("b")) == nil)
        #expect(status(.ok("a"), .unknown("b")) == .unreachable)
        #expect(status(.unknown("b"), .wrong("c", "d"), .ok("a")) == .refused)
    }

    @Test func `a diagnostic is escaped, with its remedy on the next line`() {
        let diagnosis = Diagnosis(diagnostics: [
            ("socket", .wrong("no \u{1b}[2J", "mend\u{7} it")), ("keys", .ok("good")),
        ])
        let plain = Terminal(1, isTerminal: false) { _ in nil }
        #expect(
            diagnosis.lines(on: plain) == [
                "wrong    socket         no \\x1b[2J", "                        -> mend\\x07 it",
                "ok       keys           good",
            ])
        let colored = Terminal(1, isTerminal: true) { ["TERM": "xterm"][$0] }
        #expect(diagnosis.lines(on: colored)[0].hasPrefix("\u{1b}[31mwrong    \u{1b}[0msocket"))
        let json = "{\"check\":\"keys\",\"verdict\":\"ok\",\"what\":\"good\",\"remedy\":null}]"
        #expect(diagnosis.json.hasSuffix(json))
    }

    @Test func `string settings are found in configuration lines`() {
        let lines = ConfigurationLines(
            """
            # [storage]
            storage.state = "/of/dots"
              [ storage ]
            cache = '/c # d'   # e
            keys="runtime"
            quota = 12
            [origins."a"]
            ca-file = "/ca.pem"
            url = "with \\" escape"
            [origins.a.token]
            client-secret-file = "/secret"
            [origins.b]
            ca-file = ""
            """)
        #expect(lines["storage.state"] == "/of/dots")
        #expect(lines["storage.cache"] == "/c # d")
        #expect(lines["storage.keys"] == "runtime")
        #expect(lines["storage.quota"] == nil && lines["origins.a.url"] == nil)
        #expect(lines.all(".ca-file").map(\.key) == ["origins.a.ca-file"])
        #expect(lines.all(".client-secret-file").map(\.value) == ["/secret"])
    }

    @Test func `advice depends on the examined daemon`() throws {
        func advice(_ socket: String, _ configuration: String? = nil) throws -> [String] {
            var options = DaemonOptions()
            options.socket = socket
            let daemon = try InstalledDaemon(Environment { _ in nil }, options, configuration: configuration)
            let origin = OriginsCheck.diagnostic(
                of: "a", .failure(.server(.timeout, message: "")), log: daemon.fetcherLog)
            let diagnostic = Diagnostic.unknown("x").with(daemon.accessAdvice)
            return [daemon.reloadAdvice, daemon.startAdvice, diagnostic.remedy ?? "", origin.remedy ?? ""]
        }
        for text in try advice("/run/user/1000/thumbcached/thumbcached.sock") {
            #expect(!text.contains("root") && !text.contains("journalctl -u"), "\(text)")
            #expect(!text.contains("systemctl") || text.contains("systemctl --user"), "\(text)")
        }
        let machine = try advice("/run/thumbcached/thumbcached.sock")
        #expect(machine[0].contains("systemctl reload thumbcached.service") && machine[2] == "run it as root")
        #expect(try advice("/run/thumbcached/thumbcached.sock", "/other.toml")[0].hasPrefix("correct /other.toml"))
    }

    @Test(arguments: [
        (0o040_700, 1, String?.none), (0o040_755, 1, "has mode 0755; it should be 0700"),
        (0o040_600, 1, "has mode 0600; it should be 0700"), (0o040_700, 2, "belongs to uid 2, not to uid 1"),
        (0o100_700, 1, "is not a directory"), (0o120_700, 1, "is not a directory"),
    ])
    func `a directory with a wrong owner, mode or type violates the rule`(_ mode: Int, _ uid: Int, _ fault: String?) {
        var status = stat()
        (status.st_mode, status.st_uid) = (mode_t(mode), uid_t(uid))
        #expect(FileRule(owner: 1, refused: 0o077, required: 0o700).violation(in: status)?.what == fault)
    }

    @Test func `a missing file, an inaccessible file and a wrong mode are distinguished`() throws {
        try Fixture.withDirectory { directory in
            let rule = FileRule(owner: getuid(), refused: 0o077, required: 0o700)
            #expect(rule.check("\(directory)/none", missing: .note("none")) == .note("none"))
            #expect(rule.check("/dev/null/x", missing: .ok("")).verdict == .unknown)
            chmod(directory, 0o755)
            let diagnostic = rule.check(directory, missing: .ok(""))
            #expect(diagnostic.verdict == .wrong && diagnostic.remedy == "chmod 0700 \(directory)")
            chmod(directory, 0o700)
            #expect(rule.check(directory, missing: .note("")).verdict == .ok)
        }
    }

    private func states(_ units: [(id: String, load: String, active: String, file: String, restarts: Int)])
        -> UnitStates
    {
        UnitStates(
            units.flatMap {
                [
                    "Id=\($0.id)", "LoadState=\($0.load)", "ActiveState=\($0.active)", "UnitFileState=\($0.file)",
                    "Result=exit-code", "NRestarts=\($0.restarts)",
                ]
            })
    }

    @Test func `units that are disabled, masked, missing or failed are reported`() {
        let good = [
            ("thumbcached.socket", "loaded", "active", "enabled", 0),
            ("thumbcached-fetcher.socket", "loaded", "active", "enabled", 0),
            ("thumbcached.path", "loaded", "active", "enabled", 0),
            ("thumbcached.service", "loaded", "inactive", "disabled", 0),
            ("thumbcached-fetcher.service", "loaded", "inactive", "static", 0),
            ("thumbcached-renderer.socket", "loaded", "active", "enabled", 0),
            ("thumbcached-renderer.service", "loaded", "inactive", "static", 0),
        ]
        #expect(UnitsCheck.diagnostics(states(good)).map(\.verdict) == [.ok])
        let minimal =
            good.dropLast(2) + [
                ("thumbcached-renderer.socket", "not-found", "inactive", "", 0),
                ("thumbcached-renderer.service", "not-found", "inactive", "", 0),
            ]
        #expect(UnitsCheck.diagnostics(states(Array(minimal))).map(\.verdict) == [.note])
        let bad = [
            ("thumbcached.socket", "loaded", "inactive", "disabled", 0),
            ("thumbcached-fetcher.socket", "not-found", "inactive", "", 0),
            ("thumbcached.path", "masked", "inactive", "masked", 0),
            ("thumbcached.service", "loaded", "failed", "disabled", 0),
            ("thumbcached-fetcher.service", "loaded", "active", "static", 3),
            ("thumbcached-renderer.socket", "loaded", "active", "enabled", 0),
            ("thumbcached-renderer.service", "error", "inactive", "", 0),
        ]
        #expect(
            UnitsCheck.diagnostics(states(bad)) == [
                .wrong("thumbcached.socket is not active", "systemctl start thumbcached.socket"),
                .wrong(
                    "thumbcached.socket is not enabled: it will not start at boot",
                    "systemctl enable thumbcached.socket"),
                .wrong("thumbcached-fetcher.socket is not installed", "reinstall the package, or run make install"),
                .wrong("thumbcached.path is masked", "systemctl unmask thumbcached.path"),
                .wrong("thumbcached.service has failed (exit-code)", "see journalctl -u thumbcached.service -e"),
                .note(
                    "thumbcached-fetcher.service was restarted 3 times",
                    "see journalctl -u thumbcached-fetcher.service"),
                .wrong("thumbcached-renderer.service is not loaded", "systemctl status thumbcached-renderer.service"),
            ])
    }

    @Test func `an inactive logout hook is reported`() {
        let units = ["thumbcached-logout@1000.service", "thumbcached-logout@1001.service"]
        let states = states([
            (units[0], "loaded", "active", "static", 0), (units[1], "loaded", "inactive", "static", 0),
        ])
        #expect(HookCheck.diagnostics([units[0]], states).map(\.verdict) == [.ok])
        #expect(
            HookCheck.diagnostics(units, states).map(\.remedy) == ["systemctl start thumbcached-logout@1001.service"])
    }

    @Test(arguments: [
        (ThumbcacheError.server(.origin, message: "503"), Diagnostic.Verdict.wrong),
        (.server(.origin, message: "the status was 403"), .note), (.server(.timeout, message: ""), .wrong),
        (.server(.denied, message: "a private address"), .wrong), (.server(.unauthorized, message: ""), .note),
        (.server(.badImage, message: ""), .note), (.server(.busy, message: ""), .unknown), (.timeout, .unknown),
    ])
    func `an origin that rejects the request passes; one that fails does not`(
        _ error: ThumbcacheError, _ verdict: Diagnostic.Verdict
    ) {
        #expect(OriginsCheck.diagnostic(of: "a", .failure(error), log: "").verdict == verdict)
        #expect(OriginsCheck.diagnostic(of: "a", .success(false), log: "").verdict == .ok)
    }

    @Test(arguments: [
        (["docter"], "unknown command 'docter'; did you mean doctor?"),
        (["--socket", "s", "logut", "alice"], "unknown command 'logut'; did you mean logout?"),
        (["--socket=s", "something"], "unknown command 'something'; --help lists the commands"),
        (["get"], nil), (["help", "get"], nil), (["--socket", "s"], nil), ([], nil), (["--jsn"], nil),
    ])
    func `an unknown command gets a suggestion`(_ arguments: [String], _ message: String?)
        throws
    {
        #expect(thumbcachectl.Thumbcachectl.unknownCommand(arguments) == message)
        if let message {
            let run = try Thumbcachectl.run(arguments)
            #expect(run.status == 2 && run.errors == "thumbcachectl: \(message)\n")
        }
    }
}
