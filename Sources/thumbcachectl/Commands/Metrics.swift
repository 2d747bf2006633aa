import ArgumentParser
import Glibc
@_spi(Wire) import Thumbcache

struct Metrics: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Print what the daemon counts, for Prometheus.",
        discussion: """
            In Prometheus's text format, as a textfile collector takes it; only for admins and observers \
            (access.observers). With --json an array of objects with name, labels and value.

            Example:
              thumbcachectl metrics > /var/lib/prometheus/node-exporter/thumbcached.prom
            """)

    @OptionGroup var output: OutputOptions
    @OptionGroup var daemon: DaemonOptions

    func run(in environment: Environment) async throws(Failure) {
        let text = try await environment.withDaemon(daemon) { daemon throws(Failure) in
            try await daemon.ask { client throws(ThumbcacheError) in
                let text = try await client.metrics()
                return output.json ? try Self.json(ThumbcacheMetrics(text)) + "\n" : text
            }
        }
        // Programs read it as it is.
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
