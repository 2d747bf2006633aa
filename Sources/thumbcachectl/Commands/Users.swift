import ArgumentParser
import ThumbcacheProtocol

struct Users: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "List the users of your uid that are logged in.",
        discussion: """
            One a line. Bytes that are no visible text appear as \\xNN, a backslash as \\\\; with --json a name that \
            is not UTF-8 is {"base64": "…"}.
            """)

    @OptionGroup var output: OutputOptions
    @OptionGroup var daemon: DaemonOptions

    func run(in environment: Environment) async throws(Failure) {
        try environment.show(try await environment.ask(words("USERS"), daemon), output)
    }
}
