import ArgumentParser
import RESP

struct Info: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Print figures of the daemon.",
        discussion: """
            In sections, as 'redis-cli info' prints them; figures of other uids only for admins. With --json an object for \
            each section.
            """)

    @OptionGroup var output: OutputOptions
    @OptionGroup var daemon: DaemonOptions

    func run(in environment: Environment) throws(Failure) {
        let text = try environment.ask(RequestArguments("INFO"), daemon).text ?? ""
        var lines = text.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline).map(String.init)
        if lines.last == "" { lines.removeLast() }
        let printer = environment.printer(output)
        if output.json { return try printer.json(Self.sections(lines)) }
        try printer.lines(lines.map { PlainText.escape($0) })
    }

    /// `# Section` and `key:value` lines as objects. Whole numbers become numbers.
    static func sections(_ lines: [String]) -> JSON {
        var sections: [(name: String, members: [JSON.Member])] = []
        for line in lines {
            if line.hasPrefix("# ") {
                sections.append((name: line.dropFirst(2).lowercased(), members: []))
            } else if let colon = line.firstIndex(of: ":") {
                if sections.isEmpty { sections.append((name: "", members: [])) }
                let value = String(line[line.index(after: colon)...])
                let json = Int(value).flatMap { "\($0)" == value ? JSON.integer($0) : nil } ?? .string(value)
                sections[sections.count - 1].members.append(JSON.Member(String(line[..<colon]), json))
            }
        }
        return .object(sections.map { JSON.Member($0.name, .object($0.members)) })
    }
}
