import ArgumentParser
import NIOCore
import ThumbcacheProtocol

struct Purge: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Remove a user's images, or those of some profiles.",
        discussion: """
            The user stays logged in. Without a profile everything of the user goes, with profiles all sizes of each. \
            When this returns with status 0, none of it can be read again. It prints a receipt, as logout does.

            Examples:
              thumbcachectl purge alice
              thumbcachectl purge alice bob@example.org carol@example.org
            """)

    @Argument(help: "The account whose images go.")
    var user: String?

    @Argument(help: "The people whose pictures go; all without any.")
    var profiles: [String] = []

    @Flag(help: "Purge every user of the uid.")
    var all = false

    @OptionGroup var target: TargetOptions
    @OptionGroup var output: OutputOptions
    @OptionGroup var daemon: DaemonOptions

    func validate() throws { try thumbcachectl.validate(user: user, all: all) }

    func run(in environment: Environment) async throws(Failure) {
        let profiles = profiles.isEmpty ? [] : words("\(profiles.count)") + profiles.map(ByteBuffer.init(string:))
        let request = words("PURGE", user ?? "*") + profiles + target.words
        environment.showReceipt(try await environment.ask(request, daemon), output, behind: "the purge is done")
    }
}
