import Foundation

/// A real Prometheus with the configuration in config/prometheus, whose exporter is another one, and whose pauses are
/// short.
final class Prometheus {
    static let folder = "\(Files.repository)/config/prometheus"
    private let port: UInt16
    private let process: ChildProcess

    /// - Parameter exporter: the port of what it scrapes.
    init(_ machine: Machine, exporter: UInt16) throws {
        let home = try machine.makeDirectory("prometheus")
        let rules = "thumbcached.rules.yml"
        try write(read("\(Self.folder)/\(rules)"), to: "\(home)/\(rules)")
        let configuration = String(decoding: try read("\(Self.folder)/prometheus.yml"), as: UTF8.self)
        for part in ["127.0.0.1:9420", ": 15s", rules] where !configuration.contains(part) {
            throw Failure("\(part) is not in prometheus.yml")
        }
        try write(
            configuration.replacing("127.0.0.1:9420", with: "127.0.0.1:\(exporter)").replacing(
                ": 15s", with: ": 500ms"),
            to: "\(home)/prometheus.yml")
        port = try freePort()
        process = try machine.start(
            [
                "prometheus", "--config.file=\(home)/prometheus.yml", "--storage.tsdb.path=\(home)/data",
                "--web.listen-address=127.0.0.1:\(port)", "--log.level=warn",
            ], errors: .file("\(home)/prometheus.log"))
        try eventually("Prometheus is ready on port \(port)") {
            if let status = process.ending() {
                let log = String(decoding: try read("\(home)/prometheus.log"), as: UTF8.self)
                throw Failure("Prometheus ended with status \(status): \(log)")
            }
            do { return try getHTTP(port, "/-/ready").status == 200 } catch is Failure { return false }
        }
    }

    /// What its interface answers, below `data`.
    func ask(_ path: String) throws -> Any {
        let answer = try getHTTP(port, "/api/v1/\(path)")
        let object = try JSONSerialization.jsonObject(with: Data(answer.body.utf8)) as? [String: Any]
        guard answer.status == 200, object?["status"] as? String == "success", let data = object?["data"] else {
            throw Failure("Prometheus answers \(answer.status) to \(path): \(answer.body)")
        }
        return data
    }

    /// What an expression comes to now, one value for each series.
    func values(of expression: String) throws -> [Double] {
        guard let encoded = expression.addingPercentEncoding(withAllowedCharacters: .alphanumerics),
            let data = try ask("query?query=\(encoded)") as? [String: Any],
            let series = data["result"] as? [[String: Any]]
        else { throw Failure("Prometheus has no vector for \(expression)") }
        return series.map { ($0["value"] as? [Any])?.last as? String }.map { Double($0 ?? "") ?? .nan }
    }

    struct Alert: Equatable {
        let name: String
        /// `inactive`, `pending` or `firing`.
        let state: String
        /// `ok`, once it has been evaluated without an error.
        let health: String
    }

    func alerts() throws -> [Alert] {
        let data = try ask("rules") as? [String: Any]
        let groups = data?["groups"] as? [[String: Any]] ?? []
        return groups.flatMap { $0["rules"] as? [[String: Any]] ?? [] }.map { rule in
            func text(_ key: String) -> String { rule[key] as? String ?? "" }
            return Alert(name: text("name"), state: text("state"), health: text("health"))
        }
    }
}
