import Foundation
import Testing

extension EndToEnd {
    /// thumbcached-exporter in front of a real daemon, and what is made of it: a real Prometheus with the configuration
    /// and the alerts in `config`, the panels of the dashboard, and the page.
    struct MonitoringTests {
        @Test func `promtool accepts the configuration`() throws {
            try withMachine { machine in
                let checked = try machine.run(["promtool", "check", "config", "\(Prometheus.folder)/prometheus.yml"])
                #expect(checked.status == 0, "\(checked.everything)")
                #expect(checked.text.contains("rules found"))
            }
        }

        @Test func `a real Prometheus has every metric, an answer to every panel, and an alert without the daemon`()
            throws
        {
            try withObserved { machine, daemon, exporter in
                let prometheus = try Prometheus(machine, exporter: exporter)
                try eventually("Prometheus has scraped") { try prometheus.values(of: "thumbcached_up") == [1] }
                #expect(try prometheus.values(of: "up") == [1])

                let client = try daemon.connect()
                let text = try #require(try client.call("METRICS").text)
                let said = Set(
                    text.split(separator: "\n").filter { !$0.hasPrefix("#") }
                        .map { String($0.prefix { !"{ ".contains($0) }) })
                let known = Set(try #require(try prometheus.ask("label/__name__/values") as? [String]))
                #expect(said.count > 50 && said.isSubset(of: known), "\(said.subtracting(known))")

                let expressions = try dashboardExpressions()
                #expect(expressions.count > 20)
                // Two answers at least have the load between them, so that all rates and quantiles are numbers.
                try load(client)
                var odd: [String] = []
                try eventually("every panel has something to draw") {
                    odd = try expressions.filter {
                        let values = try prometheus.values(of: $0)
                        return values.isEmpty || !values.allSatisfy(\.isFinite)
                    }
                    if !odd.isEmpty { try load(client) }
                    return odd.isEmpty
                }
                #expect(odd == [])

                var alerts: [Prometheus.Alert] = []
                try eventually("every alert has been evaluated") {
                    alerts = try prometheus.alerts()
                    return alerts.count >= 10 && alerts.allSatisfy { $0.health == "ok" }
                }
                func down() -> String? { alerts.first { $0.name == "ThumbcachedDown" }?.state }
                #expect(down() == "inactive")
                #expect(try daemon.stop() == 0)
                try eventually("the alert is on its way: \(alerts)") {
                    alerts = try prometheus.alerts()
                    return down() == "pending"
                }
                #expect(try prometheus.values(of: "up") == [1])
                try daemon.start()
                try eventually("the alert is over: \(alerts)") {
                    alerts = try prometheus.alerts()
                    return down() == "inactive"
                }
            }
        }

        @Test func `the daemon's own user reads metrics, top and the exporter, also when access.admins is empty`()
            throws
        {
            try withMachine { machine in
                let daemon = try machine.daemon { $0.settings["access", "admins"] = [] }
                let environment = ["THUMBCACHED_SOCKET": daemon.socket]
                for words in [["metrics"], ["top", "--once"]] {
                    let run = try machine.run(["\(Files.programs)/thumbcachectl"] + words, environment: environment)
                    #expect(run.status == 0 && run.text.contains("origin"), "\(run.everything)")
                }
                let port = try freePort()
                // Without --socket, the exporter looks where thumbcachectl does.
                _ = try machine.start(
                    ["\(Files.programs)/thumbcached-exporter", "--listen", "127.0.0.1:\(port)"],
                    environment: environment, errors: .file(machine.path("exporter.log")))
                try eventually("the exporter has an answer of the daemon") {
                    do {
                        return try getHTTP(port, "/metrics").body.contains("thumbcached_up 1")
                    } catch is Failure { return false }
                }
            }
        }

        @Test func `I11: neither the page nor the metrics name a user, a profile, a token or a file`() throws {
            try withObserved { machine, daemon, exporter in
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice", "TOKEN", "t0ken") == .ok)
                try load(client)
                try eventually("the page has figures") {
                    try getHTTP(exporter, "/").body.contains("<title>thumbcached: answers</title>")
                }
                for path in ["/", "/metrics"] {
                    let answer = try getHTTP(exporter, path)
                    #expect(answer.status == 200 && answer.body.contains("thumbcached"))
                    for secret in ["alice", "bob", "carol", "t0ken", machine.directory] {
                        #expect(!answer.body.contains(secret), "\(secret) is in \(path)")
                    }
                }
            }
        }

        /// What the panels ask for, with the variable that Grafana fills in.
        private func dashboardExpressions() throws -> [String] {
            let file = try read("\(Files.repository)/config/grafana/thumbcached.json")
            let dashboard = try JSONSerialization.jsonObject(with: Data(file)) as? [String: Any]
            let panels = dashboard?["panels"] as? [[String: Any]] ?? []
            return panels.flatMap { $0["targets"] as? [[String: Any]] ?? [] }.compactMap { $0["expr"] as? String }
                .map { $0.replacing("$__rate_interval", with: "1m") }
        }
    }

    /// The page in a browser that is too large for every run of the tests.
    @Suite(.enabled(if: hasLargeExamples, "make test-examples runs them"))
    struct StatusPageTests {
        @Test func `a browser shows the page and its plots, light and dark, narrow and wide, and loads nothing else`()
            throws
        {
            try withObserved { machine, daemon, exporter in
                let client = try daemon.connect()
                let plot = /class="line" d="M[^"]*L/
                try eventually("there are plots") {
                    try load(client)
                    return try getHTTP(exporter, "/").body.matches(of: plot).count == 4
                }
                let directory = URL(fileURLWithPath: try screenshot("status-page")).deletingLastPathComponent().path
                let browser = try machine.run([
                    "/usr/bin/python3", "\(Files.repository)/Tests/EndToEndTests/python/status_page.py",
                    "http://127.0.0.1:\(exporter)/", directory,
                ])
                #expect(
                    browser.text == """
                        360 light: styled fits readable
                        360 dark: styled fits readable
                        1200 light: styled fits readable
                        1200 dark: styled fits readable
                        says: answers
                        plots: 4
                        asked for: nothing else
                        reported: nothing

                        """, "\(browser.everything)")
            }
        }
    }
}

/// A daemon with an origin, and an exporter in front of it, with its port.
private func withObserved(_ body: (Machine, Daemon, UInt16) throws -> Void) throws {
    try withMachine { machine in
        let origin = try GatedOrigin { request in
            let fields = ["ETag: \"1\"", "Cache-Control: max-age=0"]
            guard request.headers["if-none-match"] == nil else {
                return [.send(GatedOrigin.response([], status: "304 Not Modified", headers: fields))]
            }
            return [.send(GatedOrigin.response(Picture.gif(request.path), headers: fields))]
        }
        defer { origin.end() }
        let daemon = try machine.daemon { $0.settings.setOrigin("\(origin.url)/{profile}") }
        let port = try freePort()
        let exporter = try machine.start(
            [
                "\(Files.programs)/thumbcached-exporter", "--socket", daemon.socket, "--listen", "127.0.0.1:\(port)",
            ], errors: .file(machine.path("exporter.log")))
        try eventually("the exporter listens on port \(port)") {
            if let status = exporter.ending() { throw Failure("the exporter ended with status \(status)") }
            do { return try getHTTP(port, "/").status == 200 } catch is Failure { return false }
        }
        try body(machine, daemon, port)
    }
}

/// A hit in memory, a download, one that found nothing new, a log-in and a log-out.
private func load(_ client: RESPClient) throws {
    #expect(try client.call("LOGIN", "alice") == .ok)
    #expect(try client.call("PUT", "alice", "bob", Picture.gif("bob")) == .ok)
    for profile in ["bob", "carol", "carol"] { _ = try client.call("GET", "alice", profile) }
    _ = try client.call("LOGOUT", "alice")
}
