import ArgumentParser
import ThumbcacheProtocol

struct Ping: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Check whether the daemon responds.",
        discussion: "Prints PONG. The exit status is 3 if no daemon responds within 10 seconds.")

    @OptionGroup var output: OutputOptions
    @OptionGroup var daemon: DaemonOptions

    func run(in environment: Environment) async throws(Failure) {
        let reply = try await environment.reply(to: words("PING"), daemon, within: 10)
        try environment.show(output.json ? .map([.simpleString("reply"), reply]) : reply, output)
    }
}
