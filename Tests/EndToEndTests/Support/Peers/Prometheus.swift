import Foundation

/// A Prometheus with the configuration in config/prometheus, except for the target's address and shorter intervals.
final class Prometheus {
    static let folder = "\(Files.repository)/config/prometheus"
    private let port: UInt16
    private let process: ChildProcess

    /// - Parameter target: the port to scrape.
    init(_ machine: Machine, target: UInt16) throws {
        let home = try machine.makeDirectory("prometheus")
        let rules = "thumbcached.rules.yml"
        try write(read("\(Self.folder)/\(rules)"), to: "\(home)/\(rules)")
        let configuration = try readText("\(Self.folder)/prometheus.yml")
        for part in ["127.0.0.1:9420", ": 15s", rules] where !configuration.contains(part) {
            throw Failure("\(part) is not in prometheus.yml")
        }
        try write(
            configuration.replacing("127.0.0.1:9420", with: "127.0.0.1:\(target)").replacing(
                ": 15s", with: ": 500ms"),
            to: "\(home)/prometheus.yml")
        port = try freePort()
        process = try machine.start(
            [
                "prometheus", "--config.file=\(home)/prometheus.yml", "--storage.tsdb.path=\(home)/data",
                "--web.listen-address=127.0.0.1:\(port)", "--log.level=warn",
            ], errors: .file("\(home)/prometheus.log"))
        try eventually("Prometheus is ready on port \(port)") {
            if let status = process.exitStatus() {
                let log = try readText("\(home)/prometheus.log")
                throw Failure("Prometheus ended with status \(status): \(log)")
            }
            do { return try getHTTP(port, "/-/ready").status == 200 } catch is Failure { return false }
        }
    }

    /// Queries the HTTP API and returns `data` of the response.
    func query(_ path: String) throws -> Any {
        let answer = try getHTTP(port, "/api/v1/\(path)")
        let object = try JSONSerialization.jsonObject(with: Data(answer.body.utf8)) as? [String: Any]
        guard answer.status == 200, object?["status"] as? String == "success", let data = object?["data"] else {
            throw Failure("Prometheus answers \(answer.status) to \(path): \(answer.body)")
        }
        return data
    }

    /// The current values of an expression, one for each series.
    func values(of expression: String) throws -> [Double] {
        guard let encoded = expression.addingPercentEncoding(withAllowedCharacters: .alphanumerics),
            let data = try query("query?query=\(encoded)") as? [String: Any],
            let series = data["result"] as? [[String: Any]]
        else { throw Failure("Prometheus has no vector for \(expression)") }
        return series.map { ($0["value"] as? [Any])?.last as? String }.map { Double($0 ?? "") ?? .nan }
    }

    struct Alert: Equatable {
        let name: String
        /// `inactive`, `pending` or `firing`.
        let state: String
        /// `ok` after an evaluation without errors.
        let health: String
    }

    func alerts() throws -> [Alert] {
        let data = try query("rules") as? [String: Any]
        let groups = data?["groups"] as? [[String: Any]] ?? []
        return groups.flatMap { $0["rules"] as? [[String: Any]] ?? [] }.map { rule in
            func text(_ key: String) -> String { rule[key] as? String ?? "" }
            return Alert(name: text("name"), state: text("state"), health: text("health"))
        }
    }
}
