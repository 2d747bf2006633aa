import ArgumentParser
import NIOCore
import ThumbcacheProtocol

struct Purge: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Remove a user's images, or those of some profiles.",
        discussion: """
            The user stays logged in. Without profiles, all images of the user are removed; with profiles, all sizes \
            of each. After exit status 0, none of them can be read again. Prints a receipt as logout does.

            Examples:
              thumbcachectl purge alice
              thumbcachectl purge alice bob@example.org carol@example.org
            """)

    @Argument(help: "The user whose images are removed.")
    var user: String?

    @Argument(help: "Profiles whose images are removed; all by default.")
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
        environment.showReceipt(
            try await environment.reply(to: request, daemon), output, after: "the purge is complete")
    }
}
