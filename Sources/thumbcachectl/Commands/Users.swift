import ArgumentParser
import ThumbcacheProtocol

struct Users: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "List the logged-in users of your uid.",
        discussion: """
            Prints one user per line. Bytes that are not visible text are printed as \\xNN, and a backslash as \\\\. \
            With --json, a name that is not UTF-8 is printed as {"base64": "…"}.
            """)

    @OptionGroup var output: OutputOptions
    @OptionGroup var daemon: DaemonOptions

    func run(in environment: Environment) async throws(Failure) {
        try environment.show(try await environment.reply(to: words("USERS"), daemon), output)
    }
}
