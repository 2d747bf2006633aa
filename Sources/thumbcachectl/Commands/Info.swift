import ArgumentParser
import RESP

struct Info: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Print figures of the daemon.",
        discussion: """
            In sections, as 'redis-cli info' prints them; figures of other uids only for admins and observers. With --json an object \
            for each section. The sections are server, clients, memory, stats, cache, store, fetch, sessions, \
            purge and keyspace.

            Example:
              thumbcachectl info memory store
            """)

    @Argument(help: "These sections alone.")
    var sections: [String] = []

    @OptionGroup var output: OutputOptions
    @OptionGroup var daemon: DaemonOptions

    func run(in environment: Environment) async throws(Failure) {
        let text = try await environment.ask(words("INFO") + sections.flatMap { words($0) }, daemon).text ?? ""
        var lines = text.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline).map(String.init)
        if lines.last == "" { lines.removeLast() }
        try environment.show(output.json ? Self.sections(lines) : .array(lines.map { .simpleString($0) }), output)
    }

    /// `# Section` and `key:value` lines as maps. Whole numbers become numbers.
    private static func sections(_ lines: [String]) -> Value {
        var sections: [(name: String, members: [Value])] = []
        for line in lines {
            if line.hasPrefix("# ") {
                sections.append((line.dropFirst(2).lowercased(), []))
            } else if let colon = line.firstIndex(of: ":"), !sections.isEmpty {
                let text = String(line[line.index(after: colon)...])
                let value = Int(text).flatMap { "\($0)" == text ? Value.integer($0) : nil } ?? .simpleString(text)
                sections[sections.count - 1].members += [.simpleString(String(line[..<colon])), value]
            }
        }
        return .map(sections.flatMap { [.simpleString($0.name), .map($0.members)] })
    }
}
