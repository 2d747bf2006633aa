import ArgumentParser
import Glibc
@_spi(Wire) import Thumbcache

struct Metrics: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Print the daemon's metrics for Prometheus.",
        discussion: """
            Prints Prometheus's text format, for example for a textfile collector, or with --json an array of objects \
            with name, labels and value. Admins and observers (access.observers) only.

            Example:
              thumbcachectl metrics | grep -v process_ > /var/lib/prometheus/node-exporter/thumbcached.prom
            """)

    @OptionGroup var output: OutputOptions
    @OptionGroup var daemon: DaemonOptions

    func run(in environment: Environment) async throws(Failure) {
        let text = try await environment.withDaemon(daemon) { daemon throws(Failure) in
            try await daemon.perform { client throws(ThumbcacheError) in
                let text = try await client.metrics()
                return output.json ? try Self.json(ThumbcacheMetrics(text)) + "\n" : text
            }
        }
        // A pipe gets the text unchanged.
        let isShown = !output.json && isTerminal(STDOUT_FILENO)
        try write(Array((isShown ? Self.shown(text) : text).utf8))
    }

    private static func shown(_ text: String) -> String {
        text.split(separator: "\n").map { PlainText.escape(String($0)) + "\n" }.joined()
    }

    private static func json(_ metrics: ThumbcacheMetrics) -> String {
        JSON.array(
            metrics.samples.map { sample in
                let labels = sample.labels.sorted { $0.key < $1.key }.map { ($0.key, JSON.string($0.value)) }
                return .object([
                    ("name", .string(sample.name)), ("labels", .object(labels)), ("value", .number(sample.value)),
                ])
            }
        ).text
    }
}
