import ArgumentParser
import ThumbcacheProtocol

struct Stat: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Say what is held of a user, or of one profile.",
        discussion: """
            Of a user: images, bytes, sessions, origin, logged-in-at (seconds since 1970) and epoch. Of a profile: \
            what get --meta prints. Nothing is downloaded. Where nothing is held, or the user is not logged in, the \
            exit status is 4.
            """)

    @Argument(help: "The account.")
    var user: String

    @Argument(help: "The person whose picture it is.")
    var profile: String?

    @OptionGroup var size: SizeOptions

    @OptionGroup var output: OutputOptions
    @OptionGroup var daemon: DaemonOptions

    func validate() throws {
        try thumbcachectl.validate(user: user)
        if size.size != nil, profile == nil { throw ValidationError("--size is of an image: name a profile, too") }
    }

    func run(in environment: Environment) async throws(Failure) {
        let imageKey = (profile.map { words($0) } ?? []) + size.words
        let reply = try await environment.ask(words("STAT", user) + imageKey, daemon)
        guard !reply.isNull else {
            let reason = profile == nil ? "the user is not logged in" : "there is no such image: none is held"
            throw try environment.noImage(output, reason)
        }
        try environment.show(reply, output)
    }
}
