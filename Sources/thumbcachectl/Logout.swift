import ArgumentParser
import RESP

struct Logout: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "End a user's cache, or one session of it.",
        discussion: """
            When this returns with status 0, nothing of the user can be read again, not even after a power cut. It prints \
            a receipt: caches ended, images and bytes that were held ('-' where they had not been counted yet), \
            downloads cancelled, sessions that remain, and the epoch. A user who is not logged in is no error.

            Example, for a log-out hook:
              thumbcachectl logout --all --uid 1000
            """)

    @Argument(help: "The account that logs out.")
    var user: String?

    @Flag(help: "Log out every user of the uid.")
    var all = false

    @Option(help: ArgumentHelp("End this session only; the cache ends with the last one.", valueName: "id"))
    var session: String?

    @OptionGroup var target: TargetOptions
    @OptionGroup var output: OutputOptions
    @OptionGroup var daemon: DaemonOptions

    func validate() throws {
        try thumbcachectl.validate(user: user, all: all)
    }

    func run(in environment: Environment) throws(Failure) {
        var request = RequestArguments("LOGOUT", user ?? "*")
        request.option("SESSION", session)
        request.option("UID", target.uid)
        let connection = try environment.connect(daemon)
        try environment.printer(output).pairs(connection.request(request.buffers).pairs)
    }
}
