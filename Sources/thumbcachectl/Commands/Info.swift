import ArgumentParser
import LinuxSupport
import ThumbcacheProtocol

struct Info: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Print statistics of the daemon.",
        discussion: """
            Prints sections as 'redis-cli info' does, or with --json one object per section. Only admins and observers \
            see statistics of other uids. The sections are \
            \(InfoSection.allCases.map(\.rawValue).joined(separator: ", ")).

            Example:
              thumbcachectl info memory store
            """)

    @Argument(help: "Sections to print; all by default.", completion: .list(InfoSection.allCases.map(\.rawValue)))
    var sections: [String] = []

    @OptionGroup var output: OutputOptions
    @OptionGroup var daemon: DaemonOptions

    func validate() throws {
        let known = InfoSection.allCases.map(\.rawValue) + InfoSection.everything
        for name in sections where !known.contains(name.lowercased()) {
            let hint =
                closestWord(to: name.lowercased(), among: known).map { "did you mean \($0)?" }
                ?? "the sections are \(InfoSection.allCases.map(\.rawValue).joined(separator: ", "))"
            throw ValidationError("unknown section '\(PlainText.escape(name))'; \(hint)")
        }
    }

    func run(in environment: Environment) async throws(Failure) {
        let text = try await environment.reply(to: words("INFO") + sections.flatMap { words($0) }, daemon).text ?? ""
        var lines = text.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline).map(String.init)
        if lines.last == "" { lines.removeLast() }
        try environment.show(output.json ? Self.sections(lines) : .array(lines.map { .simpleString($0) }), output)
    }

    /// Converts `# Section` and `key:value` lines to a map per section. Whole numbers become numbers.
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
