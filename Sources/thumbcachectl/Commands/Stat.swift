import ArgumentParser
import ThumbcacheProtocol

struct Stat: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Describe what is cached for a user or a profile.",
        discussion: """
            For a user: images, bytes, sessions, origin, logged-in-at (seconds since 1970) and epoch. For a profile: \
            the description that get --meta prints. Nothing is downloaded. The exit status is 4 if the user is not \
            logged in or no image is cached.
            """)

    @Argument(help: "The user.")
    var user: String

    @Argument(help: "The profile, such as a contact's address.")
    var profile: String?

    @OptionGroup var size: SizeOptions

    @OptionGroup var output: OutputOptions
    @OptionGroup var daemon: DaemonOptions

    func validate() throws {
        try thumbcachectl.validate(user: user)
        if size.size != nil, profile == nil { throw ValidationError("--size requires a profile") }
    }

    func run(in environment: Environment) async throws(Failure) {
        let imageKey = (profile.map { words($0) } ?? []) + size.words
        let reply = try await environment.reply(to: words("STAT", user) + imageKey, daemon)
        guard !reply.isNull else {
            let reason = profile == nil ? "the user is not logged in" : "no such image: none is cached"
            throw try environment.noImage(output, reason)
        }
        try environment.show(reply, output)
    }
}
