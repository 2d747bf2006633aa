import Foundation
import Testing

extension EndToEnd.Monitoring {
    /// thumbcached-http with a running daemon, and with Prometheus, the alerts and the dashboard in `config`.
    struct MonitoringTests {
        @Test func `promtool accepts the configuration`() throws {
            try withMachine { machine in
                let checked = try machine.runSuccessfully([
                    "promtool", "check", "config", "\(Prometheus.folder)/prometheus.yml",
                ])
                #expect(checked.text.contains("rules found"))
            }
        }

        @Test func `Prometheus has every metric, data for every panel, and an alert if the daemon is down`() throws {
            try withObserved { machine, daemon, port in
                let prometheus = try Prometheus(machine, target: port)
                try eventually("Prometheus has scraped") { try prometheus.values(of: "thumbcached_up") == [1] }
                #expect(try prometheus.values(of: "up") == [1])

                let client = try daemon.connect()
                let text = try #require(try client.call("METRICS").text)
                let metrics = Set(
                    text.split(separator: "\n").filter { !$0.hasPrefix("#") }
                        .map { String($0.prefix { !"{ ".contains($0) }) })
                let known = Set(try #require(try prometheus.query("label/__name__/values") as? [String]))
                #expect(metrics.count > 50 && metrics.isSubset(of: known), "\(metrics.subtracting(known))")

                let expressions = try dashboardExpressions()
                #expect(expressions.count > 20)
                // Rates and quantiles need load between two scrapes.
                try load(client)
                var empty: [String] = []
                try eventually("every panel has data") {
                    empty = try expressions.filter {
                        let values = try prometheus.values(of: $0)
                        return values.isEmpty || !values.allSatisfy(\.isFinite)
                    }
                    if !empty.isEmpty { try load(client) }
                    return empty.isEmpty
                }
                #expect(empty == [])

                var alerts: [Prometheus.Alert] = []
                try eventually("every alert has been evaluated") {
                    alerts = try prometheus.alerts()
                    return alerts.count >= 10 && alerts.allSatisfy { $0.health == "ok" }
                }
                func down() -> String? { alerts.first { $0.name == "ThumbcachedDown" }?.state }
                #expect(down() == "inactive")
                #expect(try daemon.stop() == 0)
                try eventually("the alert is pending: \(alerts)") {
                    alerts = try prometheus.alerts()
                    return down() == "pending"
                }
                #expect(try prometheus.values(of: "up") == [1])
                try daemon.start()
                try eventually("the alert is inactive: \(alerts)") {
                    alerts = try prometheus.alerts()
                    return down() == "inactive"
                }
            }
        }

        @Test func `the daemon's own uid may use metrics, top and thumbcached-http if access.admins is empty`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon { $0.settings["access", "admins"] = [] }
                let environment = ["THUMBCACHED_SOCKET": daemon.socket]
                for words in [["metrics"], ["top", "--once"]] {
                    let run = try machine.run(["\(Files.programs)/thumbcachectl"] + words, environment: environment)
                    #expect(run.status == 0 && run.text.contains("origin"), "\(run.summary)")
                }
                let port = try freePort()
                // Without a socket in its configuration, thumbcached-http uses the same default as thumbcachectl.
                _ = try HTTPService(
                    machine, "[figures]\nlisten = \"127.0.0.1:\(port)\"\n", environment: environment
                ) { try getHTTP(port, "/").status == 200 }
                try eventually("thumbcached-http has scraped the daemon") {
                    do {
                        return try getHTTP(port, "/metrics").body.contains("thumbcached_up 1")
                    } catch is Failure { return false }
                }
            }
        }

        @Test func `I11: page and metrics contain no user, profile, token or path`() throws {
            try withObserved { machine, daemon, port in
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice", "TOKEN", "t0ken") == .ok)
                try load(client)
                try eventually("the page shows the daemon's state") {
                    try getHTTP(port, "/").body.contains("<title>thumbcached: up</title>")
                }
                for path in ["/", "/metrics"] {
                    let response = try getHTTP(port, path)
                    #expect(response.status == 200 && response.body.contains("thumbcached"))
                    for secret in ["alice", "bob", "carol", "t0ken", machine.directory] {
                        #expect(!response.body.contains(secret), "\(secret) is in \(path)")
                    }
                }
            }
        }

        /// The expressions of the panels, with a value for Grafana's variable.
        private func dashboardExpressions() throws -> [String] {
            let file = try read("\(Files.repository)/config/grafana/thumbcached.json")
            let dashboard = try JSONSerialization.jsonObject(with: Data(file)) as? [String: Any]
            let panels = dashboard?["panels"] as? [[String: Any]] ?? []
            return panels.flatMap { $0["targets"] as? [[String: Any]] ?? [] }.compactMap { $0["expr"] as? String }
                .map { $0.replacing("$__rate_interval", with: "1m") }
        }
    }

    /// The status page in a browser.
    @Suite(.enabled(if: hasLargeExamples, "run by make test-examples"))
    struct StatusPageTests {
        @Test func `the status page is readable in both color schemes and loads no other resources`() throws {
            try withObserved { machine, daemon, port in
                let client = try daemon.connect()
                let plot = /class="line" d="M[^"]*L/
                try eventually("the page has plots") {
                    try load(client)
                    return try getHTTP(port, "/").body.matches(of: plot).count == 4
                }
                let directory = URL(fileURLWithPath: try screenshot("status-page")).deletingLastPathComponent().path
                let browser = try machine.run([
                    "/usr/bin/python3", "\(Files.repository)/Tests/EndToEndTests/python/status_page.py",
                    "http://127.0.0.1:\(port)/", directory,
                ])
                #expect(
                    browser.text == """
                        360 light: styled fits readable
                        360 dark: styled fits readable
                        500 light: styled fits readable
                        500 dark: styled fits readable
                        1200 light: styled fits readable
                        1200 dark: styled fits readable
                        state: up
                        plots: 4
                        resources: none
                        console: none

                        """, "\(browser.summary)")
            }
        }
    }
}

/// Runs a test with a daemon, its origin, and thumbcached-http with the given port.
private func withObserved(_ body: (Machine, Daemon, UInt16) throws -> Void) throws {
    try withMachine { machine in
        let origin = try GatedOrigin { request in
            let fields = ["ETag: \"1\"", "Cache-Control: max-age=0"]
            guard request.headers["if-none-match"] == nil else {
                return [.send(GatedOrigin.response([], status: "304 Not Modified", headers: fields))]
            }
            return [.send(GatedOrigin.response(TestImage.gif(request.path), headers: fields))]
        }
        defer { origin.end() }
        let daemon = try machine.daemon { $0.settings.setOrigin("\(origin.url)/{profile}") }
        let port = try freePort()
        let settings = "[figures]\nlisten = \"127.0.0.1:\(port)\"\n"
        _ = try HTTPService(machine, settings, arguments: ["--socket", daemon.socket]) {
            try getHTTP(port, "/").status == 200
        }
        try body(machine, daemon, port)
    }
}

/// A login, a PUT, a hit, a download, a revalidation and a logout.
private func load(_ client: RESPClient) throws {
    #expect(try client.call("LOGIN", "alice") == .ok)
    #expect(try client.call("PUT", "alice", "bob", TestImage.gif("bob")) == .ok)
    for profile in ["bob", "carol", "carol"] { _ = try client.call("GET", "alice", profile) }
    _ = try client.call("LOGOUT", "alice")
}
